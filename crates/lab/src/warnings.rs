//! What a reader should know about a run, with the cause and the remedy.
