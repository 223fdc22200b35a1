//! A value, ready to go or as it came.

use std::ops::Deref;
use std::sync::Arc;

use plimsoll_memory::Sealed;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::WireError;
use super::reader::Reader;
use super::writer::Writer;

/// One value as bytes and the shared memory that its long parts are in. Clones share it all.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    pub(super) body: Body,
    pub(super) segments: Arc<[Arc<Sealed>]>,
}

#[derive(Clone, Debug)]
pub(super) enum Body {
    Here(Arc<[u8]>),
    Shared(Arc<Sealed>),
}

impl Deref for Body {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Body::Here(bytes) => bytes,
            Body::Shared(sealed) => sealed,
        }
    }
}

impl Message {
    /// The message that says `value`.
    pub fn of<T: Serialize + ?Sized>(value: &T) -> Result<Message, WireError> {
        let mut writer = Writer::default();
        value.serialize(&mut writer)?;
        let (body, segments) = writer.finish()?;
        Ok(Message { body, segments: segments.into() })
    }

    /// A message that says nothing: the unit value.
    pub fn empty() -> Message {
        Message { body: Body::Here(Arc::default()), segments: Arc::default() }
    }

    /// Its contents.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, WireError> {
        let mut reader = Reader { rest: &self.body, segments: &self.segments, depth: 0 };
        let value = T::deserialize(&mut reader)?;
        match reader.rest.len() {
            0 => Ok(value),
            left => Err(WireError::Value(format!("{left} bytes are left after it"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use serde::Deserialize;

    use super::super::{Bulk, LONG};
    use super::*;

    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    enum Shape {
        Nothing,
        One(f64),
        Two(i8, String),
        Fields { a: Option<u128>, b: Vec<Shape> },
    }

    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    struct All {
        truth: bool,
        letter: char,
        numbers: (u8, i16, u32, i64, i128, f32),
        text: String,
        shapes: Vec<Shape>,
        map: BTreeMap<String, Vec<u16>>,
        unit: (),
        boxed: Box<Option<Option<i32>>>,
    }

    fn shapes() -> impl Strategy<Value = Shape> {
        let leaf = prop_oneof![
            Just(Shape::Nothing),
            any::<f64>().prop_filter("equal to itself", |x| !x.is_nan()).prop_map(Shape::One),
            (any::<i8>(), any::<String>()).prop_map(|(a, b)| Shape::Two(a, b)),
        ];
        leaf.prop_recursive(4, 20, 4, |inner| {
            (any::<Option<u128>>(), prop::collection::vec(inner, 0..4)).prop_map(|(a, b)| Shape::Fields { a, b })
        })
    }

    proptest! {
        #[test]
        fn what_goes_in_comes_out(
            truth: bool, letter: char, numbers: (u8, i16, u32, i64, i128), real in -1e30f32..1e30, text: String,
            shapes in prop::collection::vec(shapes(), 0..5),
            map in prop::collection::btree_map(any::<String>(), any::<Vec<u16>>(), 0..4),
            boxed: Option<Option<i32>>,
        ) {
            let (a, b, c, d, e) = numbers;
            let all = All { truth, letter, numbers: (a, b, c, d, e, real), text, shapes, map, unit: (), boxed: Box::new(boxed) };
            let message = Message::of(&all).unwrap();
            prop_assert_eq!(message.read::<All>().unwrap(), all);
            // Nothing that is cut or changed takes more than an error.
            let bytes = message.body.to_vec();
            for end in (0..bytes.len()).step_by(7) {
                prop_assert!(cut(&bytes[..end]).read::<All>().is_err());
                let mut changed = bytes.clone();
                changed[end] ^= 0xff;
                let _ = cut(&changed).read::<All>();
            }
        }
    }

    fn cut(bytes: &[u8]) -> Message {
        Message { body: Body::Here(bytes.into()), segments: Arc::default() }
    }

    #[test]
    fn long_parts_are_shared() {
        let text = "x".repeat(LONG + 1);
        let numbers: Vec<f32> = (0..100_000).map(|i| i as f32).collect();
        let bulk = Bulk::from(numbers.clone());
        let message = Message::of(&(&text, &bulk, 7u8, &bulk.clone(), Bulk::from(vec![1u16, 2]))).unwrap();
        assert!(message.body.len() < 200 && message.segments.len() == 3);
        let (same, first, seven, second, few) = message.read::<(String, Bulk<f32>, u8, Bulk<f32>, Bulk<u16>)>().unwrap();
        assert_eq!((same, seven, &*few), (text, 7, &[1u16, 2][..]));
        assert!(*first == numbers && second == bulk);
        // It outlives the message, and can be sent on.
        drop((message, bulk, second));
        assert!(*Message::of(&first).unwrap().read::<Bulk<f32>>().unwrap() == numbers);
        // A sequence is written number by number, and the whole of it is long.
        let message = Message::of(&numbers).unwrap();
        assert!(matches!(message.body, Body::Shared(_)));
        assert_eq!(message.read::<Vec<f32>>().unwrap(), numbers);
        assert!(Message::of(&Bulk::from(vec![0u8; LONG + 1])).unwrap().read::<Bulk<u32>>().unwrap_err().to_string().contains("not whole"));
        assert_eq!(*Bulk::<u64>::filled(LONG, |numbers| numbers[9] = 9).unwrap().get(9).unwrap(), 9);
    }

    #[test]
    fn what_cannot_be_said_is_refused() {
        #[derive(Debug, Serialize, Deserialize)]
        struct List(Option<Box<List>>);
        let list = |length: usize| (0..length).fold(List(None), |rest, _| List(Some(Box::new(rest))));
        let deep = Message::of(&list(10_000));
        assert!(deep.unwrap_err().to_string().contains("deep"));
        assert!(Message::of(&list(100)).unwrap().read::<List>().is_ok());
        assert!(cut(&[1; 100_000]).read::<List>().unwrap_err().to_string().contains("deep"));

        #[derive(Serialize)]
        struct Skips {
            #[serde(skip_serializing_if = "Option::is_none")]
            maybe: Option<u8>,
        }
        assert!(Message::of(&Skips { maybe: None }).unwrap_err().to_string().contains("'maybe'"));
        assert!(Message::of(&1u8).unwrap().read::<u16>().is_err());
        assert!(Message::of(&1u16).unwrap().read::<u8>().unwrap_err().to_string().contains("left"));
        assert!(cut(&[2]).read::<bool>().is_err() && cut(&[2, 0]).read::<Option<u8>>().is_err());
        assert!(cut(&[0xff; 12]).read::<String>().unwrap_err().to_string().contains("segment"));
        assert!(cut(&[0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f]).read::<Vec<u64>>().is_err());
    }

    #[test]
    fn other_formats_see_bytes() {
        for length in [3, LONG] {
            let bulk = Bulk::from(vec![258u16; length]);
            let text = serde_json::to_string(&bulk).unwrap();
            assert!(text.starts_with("{\"bytes\":[2,1,2,1"), "{}", &text[..30]);
            assert!(serde_json::from_str::<Bulk<u16>>(&text).unwrap() == bulk);
        }
    }

    #[test]
    fn unknown_lengths_are_counted() {
        struct Even;
        impl Serialize for Even {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_seq((0u32..9).filter(|number| number % 2 == 0))
            }
        }
        assert_eq!(Message::of(&Even).unwrap().read::<Vec<u32>>().unwrap(), [0, 2, 4, 6, 8]);

        // And where their place has left the buffer.
        struct Odd;
        impl Serialize for Odd {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_seq((0u32..1_000_000).filter(|number| number % 2 == 1))
            }
        }
        let (first, odd) = Message::of(&(1u8, Odd)).unwrap().read::<(u8, Vec<u32>)>().unwrap();
        assert!(first == 1 && odd.len() == 500_000 && odd.iter().zip(0..).all(|(odd, half)| *odd == 2 * half + 1));
    }
}
