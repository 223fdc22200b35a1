//! Many numbers, in memory that processes share.

use std::fmt;
use std::fs::File;
use std::marker::PhantomData;
use std::ops::Deref;
use std::os::fd::AsRawFd;
use std::sync::Arc;

use bytemuck::Pod;
use plimsoll_base::{Error, Result};
use plimsoll_memory::Sealed;
use serde::de::{self, Deserialize, Deserializer, EnumAccess, VariantAccess, Visitor};
use serde::ser::{Serialize, Serializer};

use super::LONG;

/// How [`Bulk`] is called where it is written and read: the wire knows it by that.
pub(super) const BULK: &str = "plimsoll::share::Bulk";

/// Where a descriptor's number would stand: there is none.
const NOWHERE: u32 = u32::MAX;

/// Many numbers that go to a worker and back without being copied: a slice that cannot be changed, of any type of plain old data.
///
/// From 64 KiB on they are in sealed shared memory. Its descriptor is sent, and the receiver maps the same pages. Clones are the
/// same memory. With other formats of serde it is a sequence of bytes.
pub struct Bulk<T>(Held<T>);

enum Held<T> {
    Own(Arc<Vec<T>>),
    Shared(Arc<Sealed>),
}

impl<T: Pod> Bulk<T> {
    /// So many numbers, zero at first, as `fill` leaves them, made where they are sent from.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED where the system has no room.
    pub fn filled(length: usize, fill: impl FnOnce(&mut [T])) -> Result<Bulk<T>> {
        let beyond = || Error::invalid_argument(format!("{length} numbers of {} bytes are beyond all memory", size_of::<T>()));
        let bytes = length.checked_mul(size_of::<T>()).ok_or_else(beyond)?;
        if bytes < LONG {
            let mut numbers = vec![T::zeroed(); length];
            fill(&mut numbers);
            return Ok(Bulk(Held::Own(Arc::new(numbers))));
        }
        let sealed = Sealed::filled(bytes, |bytes| fill(bytemuck::cast_slice_mut(bytes)))?;
        Ok(Bulk(Held::Shared(Arc::new(sealed))))
    }

    /// A copy of the numbers.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED where the system has no room.
    pub fn copy_of(numbers: &[T]) -> Result<Bulk<T>> {
        let bytes: &[u8] = bytemuck::cast_slice(numbers);
        match bytes.len() {
            0..LONG => Ok(Bulk(Held::Own(Arc::new(numbers.to_vec())))),
            _ => Ok(Bulk(Held::Shared(Arc::new(Sealed::copy_of(bytes)?)))),
        }
    }

    fn of_bytes(bytes: &[u8]) -> Result<Bulk<T>, String> {
        let whole = size_of::<T>() > 0 && bytes.len().is_multiple_of(size_of::<T>());
        let wrong = || format!("{} bytes are not whole {}", bytes.len(), std::any::type_name::<T>());
        whole.then(|| Bulk(Held::Own(Arc::new(bytemuck::pod_collect_to_vec(bytes))))).ok_or_else(wrong)
    }

    fn of_descriptor(number: u64) -> Result<Bulk<T>, String> {
        let file = File::open(format!("/proc/self/fd/{number}")).map_err(|error| format!("shared memory cannot be opened: {error}"))?;
        let shared = Sealed::received(file).map_err(|error| error.to_string())?.without_file();
        match bytemuck::try_cast_slice::<u8, T>(&shared) {
            Ok(_) => Ok(Bulk(Held::Shared(Arc::new(shared)))),
            Err(_) => Err(format!("{} bytes are not whole {}", shared.len(), std::any::type_name::<T>())),
        }
    }
}

impl<T: Pod> Deref for Bulk<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        match &self.0 {
            Held::Own(numbers) => numbers,
            // A mapping begins with a page, and its length was looked at.
            Held::Shared(bytes) => bytemuck::cast_slice(bytes),
        }
    }
}

impl<T: Pod> From<Vec<T>> for Bulk<T> {
    /// Where the system has no room for shared memory, the numbers stay where they are until they are sent.
    fn from(numbers: Vec<T>) -> Bulk<T> {
        match Sealed::copy_of(bytemuck::cast_slice(&numbers)) {
            Ok(shared) if shared.len() >= LONG => Bulk(Held::Shared(Arc::new(shared))),
            _ => Bulk(Held::Own(Arc::new(numbers))),
        }
    }
}

impl<T> Clone for Bulk<T> {
    fn clone(&self) -> Bulk<T> {
        Bulk(match &self.0 {
            Held::Own(numbers) => Held::Own(numbers.clone()),
            Held::Shared(bytes) => Held::Shared(bytes.clone()),
        })
    }
}

impl<T: Pod> fmt::Debug for Bulk<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}; {}]", std::any::type_name::<T>(), self.len())
    }
}

impl<T: Pod + PartialEq> PartialEq for Bulk<T> {
    fn eq(&self, other: &Bulk<T>) -> bool {
        **self == **other
    }
}

impl<T: Pod> Serialize for Bulk<T> {
    /// A variant whose index is the number of the descriptor: the wire sends that instead of the bytes, and for all others it is
    /// a variant like any.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let file = match &self.0 {
            Held::Shared(bytes) => bytes.file(),
            Held::Own(_) => None,
        };
        let number = file.map_or(NOWHERE, |file| file.as_raw_fd() as u32);
        serializer.serialize_newtype_variant(BULK, number, "bytes", &Plain(bytemuck::cast_slice(self)))
    }
}

struct Plain<'a>(&'a [u8]);

impl Serialize for Plain<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(self.0)
    }
}

impl<'de, T: Pod> Deserialize<'de> for Bulk<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Bulk<T>, D::Error> {
        deserializer.deserialize_enum(BULK, &["bytes"], OfBulk(PhantomData))
    }
}

struct OfBulk<T>(PhantomData<T>);

impl<'de, T: Pod> Visitor<'de> for OfBulk<T> {
    type Value = Bulk<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the bytes of many numbers")
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<Bulk<T>, E> {
        Bulk::of_descriptor(number).map_err(E::custom)
    }

    fn visit_bytes<E: de::Error>(self, bytes: &[u8]) -> Result<Bulk<T>, E> {
        Bulk::of_bytes(bytes).map_err(E::custom)
    }

    fn visit_enum<A: EnumAccess<'de>>(self, access: A) -> Result<Bulk<T>, A::Error> {
        let (_, content) = access.variant::<AnyVariant>()?;
        let Raw(bytes) = content.newtype_variant()?;
        Bulk::of_bytes(&bytes).map_err(de::Error::custom)
    }
}

/// A name or a number, which says nothing.
struct AnyVariant;

impl<'de> Deserialize<'de> for AnyVariant {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<AnyVariant, D::Error> {
        struct Any;
        impl Visitor<'_> for Any {
            type Value = AnyVariant;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the variant 'bytes'")
            }
            fn visit_u64<E: de::Error>(self, _: u64) -> Result<AnyVariant, E> {
                Ok(AnyVariant)
            }
            fn visit_str<E: de::Error>(self, _: &str) -> Result<AnyVariant, E> {
                Ok(AnyVariant)
            }
        }
        deserializer.deserialize_identifier(Any)
    }
}

/// Bytes as other formats give them.
struct Raw(Vec<u8>);

impl<'de> Deserialize<'de> for Raw {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Raw, D::Error> {
        struct Any;
        impl<'de> Visitor<'de> for Any {
            type Value = Raw;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("bytes")
            }
            fn visit_bytes<E: de::Error>(self, bytes: &[u8]) -> Result<Raw, E> {
                Ok(Raw(bytes.to_vec()))
            }
            fn visit_seq<A: de::SeqAccess<'de>>(self, mut sequence: A) -> Result<Raw, A::Error> {
                let mut bytes = Vec::new();
                while let Some(byte) = sequence.next_element()? {
                    bytes.push(byte);
                }
                Ok(Raw(bytes))
            }
        }
        deserializer.deserialize_byte_buf(Any)
    }
}
