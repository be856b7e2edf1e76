//! Values that are written as one text everywhere: in logs, in JSON, in the configuration.

/// Serializes each type the way it displays.
macro_rules! serialize_as_text {
    ($($name:ty),*) => {$(
        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
    )*};
}
