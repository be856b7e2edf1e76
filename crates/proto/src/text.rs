//! Serialisation of values that have the same text in logs, in JSON and in the configuration.

/// Implements `Serialize` with the text of `Display`.
macro_rules! serialize_as_text {
    ($($name:ty),*) => {$(
        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
    )*};
}

/// Implements `Deserialize` with `FromStr`.
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
