//! Tensors between processes and in other formats, through serde: in the form in which they are held, so that short forms stay
//! short.

use std::borrow::Cow;
use std::fmt;

use plimsoll_base::{DataType, Error};
use serde::de::{self, Deserialize, Deserializer, SeqAccess, Visitor};
use serde::ser::{Serialize, Serializer};

use crate::{HostTensor, Shape, TensorData};

/// The written form: the data type's wire number, the dimensions, the elements.
#[derive(serde::Serialize, serde::Deserialize)]
#[serde(rename = "HostTensor")]
struct Sent<'a> {
    data_type: i32,
    shape: Cow<'a, [u64]>,
    #[serde(borrow)]
    elements: Elements<'a>,
}

#[derive(serde::Serialize, serde::Deserialize)]
enum Elements<'a> {
    #[serde(borrow)]
    Dense(Run<'a>),
    /// Leading ones, the last of which repeats.
    Repeated(Run<'a>),
    Strings(Vec<Run<'a>>),
    Opaque(Run<'a>),
}

/// Bytes, which formats have a short way of writing.
struct Run<'a>(Cow<'a, [u8]>);

impl Serialize for Run<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.0)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Run<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Run<'a>, D::Error> {
        struct Any;
        impl<'de> Visitor<'de> for Any {
            type Value = Run<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("bytes")
            }
            fn visit_borrowed_bytes<E: de::Error>(self, bytes: &'de [u8]) -> Result<Run<'de>, E> {
                Ok(Run(Cow::Borrowed(bytes)))
            }
            fn visit_bytes<E: de::Error>(self, bytes: &[u8]) -> Result<Run<'de>, E> {
                Ok(Run(Cow::Owned(bytes.to_vec())))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Run<'de>, A::Error> {
                let mut bytes = Vec::new();
                while let Some(byte) = sequence.next_element()? {
                    bytes.push(byte);
                }
                Ok(Run(Cow::Owned(bytes)))
            }
        }
        deserializer.deserialize_bytes(Any)
    }
}

impl Serialize for HostTensor {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let run = |bytes| Run(Cow::Borrowed(bytes));
        let dense = self.panels().and_then(|_| self.dense().ok());
        let elements = match self.data() {
            TensorData::Panels(_) => Elements::Dense(run(dense.as_ref().and_then(HostTensor::bytes).unwrap_or_default())),
            TensorData::Dense(_) => Elements::Dense(run(self.bytes().unwrap_or_default())),
            TensorData::Repeated(leading) => Elements::Repeated(run(leading)),
            TensorData::Strings(strings) => Elements::Strings(strings.iter().map(|string| run(string)).collect()),
            TensorData::Opaque(encoded) => Elements::Opaque(run(encoded)),
        };
        Sent { data_type: self.data_type().number(), shape: Cow::Borrowed(self.shape().dims()), elements }.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for HostTensor {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<HostTensor, D::Error> {
        let sent = Sent::deserialize(deserializer)?;
        received(sent).map_err(de::Error::custom)
    }
}

fn received(sent: Sent<'_>) -> Result<HostTensor, Error> {
    let wrong = || Error::invalid_argument(format!("{} is not a data type", sent.data_type));
    let data_type = DataType::from_number(sent.data_type).ok_or_else(wrong)?;
    let shape = Shape::new(sent.shape.into_owned());
    match sent.elements {
        Elements::Dense(bytes) => HostTensor::from_bytes(data_type, shape, &bytes.0),
        Elements::Repeated(leading) => HostTensor::from_leading(data_type, shape, &leading.0),
        Elements::Strings(strings) if data_type == DataType::String => {
            HostTensor::from_strings(shape, strings.into_iter().map(|string| string.0.into_owned()).collect())
        }
        Elements::Strings(_) => Err(Error::invalid_argument(format!("a {data_type} tensor has no strings"))),
        Elements::Opaque(encoded) => Ok(HostTensor::opaque(data_type, shape, &encoded.0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn there_and_back(tensor: &HostTensor) -> HostTensor {
        let text = serde_json::to_string(tensor).unwrap();
        let back: HostTensor = serde_json::from_str(&text).unwrap();
        assert_eq!((back.data_type(), back.shape()), (tensor.data_type(), tensor.shape()));
        assert_eq!(serde_json::to_string(&back).unwrap(), text);
        back
    }

    #[test]
    fn tensors_of_every_kind_come_back() {
        let dense = HostTensor::from_slice([2, 2], &[1.0f32, 2.0, 3.0, 4.0]).unwrap();
        assert_eq!(there_and_back(&dense).as_slice::<f32>().unwrap(), [1.0, 2.0, 3.0, 4.0]);
        let strings = HostTensor::from_strings([2], vec![b"a".to_vec(), vec![0, 255]]).unwrap();
        assert_eq!(there_and_back(&strings).strings().unwrap(), strings.strings().unwrap());
        // A terabyte of one number stays one number.
        let splat = HostTensor::from_leading(DataType::Float, Shape::new([1u64 << 38]), &1.5f32.to_le_bytes()).unwrap();
        assert_eq!(there_and_back(&splat).splat(), splat.splat());
        there_and_back(&HostTensor::opaque(DataType::Resource, Shape::scalar(), b"xyz"));
        there_and_back(&HostTensor::zeros(DataType::Bool, Shape::new([0u64, 3])).unwrap());
    }

    #[test]
    fn what_makes_no_tensor_is_refused() {
        for text in [
            r#"{"data_type":1,"shape":[3],"elements":{"Dense":[0,0,0,0]}}"#,
            r#"{"data_type":0,"shape":[],"elements":{"Dense":[]}}"#,
            r#"{"data_type":1,"shape":[1],"elements":{"Strings":[[1]]}}"#,
            r#"{"data_type":7,"shape":[2],"elements":{"Strings":[[1]]}}"#,
            r#"{"data_type":1,"shape":[18446744073709551615,2],"elements":{"Repeated":[0,0,0,0]}}"#,
        ] {
            assert!(serde_json::from_str::<HostTensor>(text).is_err(), "{text}");
        }
    }
}
