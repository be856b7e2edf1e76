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

/// Deserializes each type from the text it displays as.
macro_rules! deserialize_from_text {
    ($($name:ty),*) => {$(
        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = <std::borrow::Cow<'de, str> as serde::Deserialize>::deserialize(deserializer)?;
                text.parse().map_err(|error| serde::de::Error::custom(format_args!("{text:?} is not {error}")))
            }
        }
    )*};
}
