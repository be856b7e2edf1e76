//! Slow, plain models of queues and losses, written from the papers and RFCs and not from the emulator: recorded arrivals
//! are replayed through them, and every decision must be the same.
