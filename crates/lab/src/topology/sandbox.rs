//! The namespaces a lab lives in, and the process at their head: when that ends, so does everything in them.
