//! Measures every link of a lab by other code than the emulator's, and compares with what the file says.
