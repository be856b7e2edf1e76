//! `ekiden doctor`: what it says of transparent listeners.
