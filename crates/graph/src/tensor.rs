//! Tensors in the memory of the host.

use std::fmt;
use std::sync::Arc;

use bytemuck::{Pod, Zeroable};
use plimsoll_base::{Bf16, Bytes, DataType, Error, F16, Panels, Result, Shortage};

use crate::Shape;

/// A Rust type that is the element of some [`DataType`].
pub trait Element: Pod + fmt::Debug + PartialEq {
    /// That type.
    const DATA_TYPE: DataType;
}

macro_rules! elements {
    ($($rust:ty => $data_type:ident),*) => { $(impl Element for $rust { const DATA_TYPE: DataType = DataType::$data_type; })* };
}
elements!(F16 => Half, Bf16 => Bfloat16, f32 => Float, f64 => Double, i8 => Int8, i16 => Int16, i32 => Int32, i64 => Int64, u8 => Uint8, u16 => Uint16, u32 => Uint32, u64 => Uint64);

/// 64 bytes that begin at a multiple of 64: the alignment of every tensor that we allocate.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(64))]
struct Line([u8; 64]);

/// Memory of somebody else, who keeps it where it is, and as it is, while this exists.
pub type Owner = Arc<dyn AsRef<[u8]> + Send + Sync + std::panic::RefUnwindSafe>;

/// Bytes of a tensor, shared until a write.
#[derive(Clone)]
enum Buffer {
    /// At a 64-byte boundary.
    Own { lines: Arc<Vec<Line>>, bytes: usize },
    /// At a multiple of the size of its elements' numbers.
    Of(Owner),
}

impl Buffer {
    /// Zeros, on pages that exist only once they are written. Fails where the system has not that much.
    fn zeroed(bytes: usize) -> Result<Buffer> {
        let refused = || {
            let shortage = Shortage { requested: Bytes(bytes as u64), ..Shortage::default() };
            Error::no_room(format!("the system has no {bytes} bytes for a tensor"), shortage)
        };
        let lines = bytemuck::allocation::try_zeroed_vec(bytes.div_ceil(64)).map_err(|()| refused())?;
        Ok(Buffer::Own { lines: Arc::new(lines), bytes })
    }

    fn from_bytes(bytes: &[u8]) -> Result<Buffer> {
        let mut buffer = Buffer::zeroed(bytes.len())?;
        buffer.bytes_mut().copy_from_slice(bytes);
        Ok(buffer)
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Buffer::Own { lines, bytes } => &bytemuck::cast_slice(lines.as_slice())[..*bytes],
            Buffer::Of(owner) => (**owner).as_ref(),
        }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        if let Buffer::Of(owner) = self {
            let theirs = (**owner).as_ref();
            let mut lines: Vec<Line> = bytemuck::allocation::zeroed_vec(theirs.len().div_ceil(64));
            bytemuck::cast_slice_mut(lines.as_mut_slice())[..theirs.len()].copy_from_slice(theirs);
            *self = Buffer::Own { bytes: theirs.len(), lines: Arc::new(lines) };
        }
        match self {
            Buffer::Own { lines, bytes } => &mut bytemuck::cast_slice_mut(Arc::make_mut(lines).as_mut_slice())[..*bytes],
            Buffer::Of(_) => &mut [],
        }
    }
}

/// How a tensor's elements are held.
#[derive(Clone)]
pub enum TensorData {
    /// All elements, row-major, little-endian.
    Dense(DenseData),
    /// The leading elements; the last of them repeats to the end. Never as long as the tensor, never empty.
    Repeated(Arc<[u8]>),
    /// All elements, little-endian, as a matrix in panels: see [`HostTensor::in_panels`].
    Panels(PanelData),
    /// Elements of a string tensor.
    Strings(Arc<[Vec<u8>]>),
    /// An encoded TensorProto of a type that has no host form here (resource handles, variants).
    Opaque(Arc<[u8]>),
}

/// Row-major little-endian bytes, at a 64-byte boundary where they are our own.
#[derive(Clone)]
pub struct DenseData(Buffer);

/// The bytes of a matrix in panels, at a 64-byte boundary.
#[derive(Clone)]
pub struct PanelData {
    buffer: Buffer,
    panels: Panels,
}

impl PanelData {
    /// Calls `visit` with each run of elements of one row and one panel, of `size` bytes each: where its bytes lie row-major, and where
    /// in panels. Panel by panel.
    fn each_run(panels: Panels, bytes: usize, size: usize, mut visit: impl FnMut(std::ops::Range<usize>, std::ops::Range<usize>)) {
        let row = (panels.columns as usize).saturating_mul(size);
        let rows = bytes.checked_div(row).unwrap_or(0);
        let mut held = 0;
        for columns in panels.ranges() {
            let (first, width) = (columns.start as usize * size, (columns.end - columns.start) as usize * size);
            for number in 0..rows {
                let at = number * row + first;
                visit(at..at + width, held..held + width);
                held += width;
            }
        }
    }
}

/// A tensor in host memory: a data type, a shape and elements. Cloning shares the elements.
#[derive(Clone)]
pub struct HostTensor {
    data_type: DataType,
    shape: Shape,
    data: TensorData,
}

impl HostTensor {
    /// A dense tensor of zeros.
    ///
    /// # Errors
    /// INVALID_ARGUMENT where elements have no fixed size or the bytes do not fit the address space, RESOURCE_EXHAUSTED where
    /// the system has not that much.
    pub fn zeros(data_type: DataType, shape: Shape) -> Result<HostTensor> {
        let bytes = byte_len(data_type, &shape)?;
        Ok(HostTensor { data_type, shape, data: TensorData::Dense(DenseData(Buffer::zeroed(bytes)?)) })
    }

    /// A tensor over memory of somebody else, where its elements are row-major and little-endian: nothing is copied, unless the memory
    /// is not aligned to the elements, or has bools that are neither 0 nor 1.
    ///
    /// # Errors
    /// INVALID_ARGUMENT where the memory has not the tensor's size.
    pub fn from_owner(data_type: DataType, shape: Shape, owner: Owner) -> Result<HostTensor> {
        let bytes = (*owner).as_ref();
        let alignment = data_type.number_size().unwrap_or(1);
        let is_bools = data_type != DataType::Bool || bytes.iter().all(|byte| *byte <= 1);
        if bytes.len() != byte_len(data_type, &shape)? || bytes.as_ptr().align_offset(alignment) != 0 || !is_bools {
            return HostTensor::from_bytes(data_type, shape, bytes);
        }
        Ok(HostTensor { data_type, shape, data: TensorData::Dense(DenseData(Buffer::Of(owner))) })
    }

    /// A tensor of these elements, row-major.
    ///
    /// # Errors
    /// INVALID_ARGUMENT where the number of values is not the shape's.
    pub fn from_slice<T: Element>(shape: impl Into<Shape>, values: &[T]) -> Result<HostTensor> {
        HostTensor::from_bytes(T::DATA_TYPE, shape.into(), bytemuck::cast_slice(values))
    }

    /// A bool tensor of these elements, row-major.
    ///
    /// # Errors
    /// As [`HostTensor::from_slice`].
    pub fn from_bools(shape: impl Into<Shape>, values: &[bool]) -> Result<HostTensor> {
        let bytes: Vec<u8> = values.iter().map(|value| u8::from(*value)).collect();
        HostTensor::from_bytes(DataType::Bool, shape.into(), &bytes)
    }

    /// A scalar.
    pub fn scalar<T: Element>(value: T) -> HostTensor {
        HostTensor::from_slice(Shape::scalar(), &[value]).expect("one value is a scalar's")
    }

    /// A tensor of these raw little-endian bytes, row-major. Bools other than 0 become 1.
    ///
    /// # Errors
    /// INVALID_ARGUMENT where the length is not shape x size, or elements have no fixed size.
    pub fn from_bytes(data_type: DataType, shape: Shape, bytes: &[u8]) -> Result<HostTensor> {
        let expected = byte_len(data_type, &shape)?;
        if bytes.len() != expected {
            return Err(Error::invalid_argument(format!(
                "a {data_type} tensor of shape {shape} takes {expected} bytes, not {}",
                bytes.len()
            )));
        }
        let mut buffer = Buffer::from_bytes(bytes)?;
        normalise_bools(data_type, buffer.bytes_mut());
        Ok(HostTensor { data_type, shape, data: TensorData::Dense(DenseData(buffer)) })
    }

    /// A tensor whose leading elements are these bytes and whose last given element repeats to the end
    /// (TensorProto's rule; one element makes a splat). Surplus elements are left out; no elements mean zeros.
    ///
    /// # Errors
    /// INVALID_ARGUMENT where elements have no fixed size, `leading` is no whole number of them, or the shape overflows.
    pub fn from_leading(data_type: DataType, shape: Shape, leading: &[u8]) -> Result<HostTensor> {
        let size = element_size(data_type)?;
        let total = byte_len(data_type, &shape)?;
        if !leading.len().is_multiple_of(size) {
            return Err(Error::invalid_argument(format!("{} bytes are not a whole number of {data_type} elements", leading.len())));
        }
        if leading.len() >= total {
            return HostTensor::from_bytes(data_type, shape, &leading[..total]);
        }
        let mut leading: Vec<u8> = if leading.is_empty() { vec![0; size] } else { leading.to_vec() };
        normalise_bools(data_type, &mut leading);
        while leading.len() >= 2 * size && leading[leading.len() - 2 * size..leading.len() - size] == leading[leading.len() - size..] {
            leading.truncate(leading.len() - size);
        }
        if leading.len() == total {
            return HostTensor::from_bytes(data_type, shape, &leading);
        }
        Ok(HostTensor { data_type, shape, data: TensorData::Repeated(leading.into()) })
    }

    /// A string tensor, row-major.
    ///
    /// # Errors
    /// INVALID_ARGUMENT where the number of values is not the shape's.
    pub fn from_strings(shape: impl Into<Shape>, values: Vec<Vec<u8>>) -> Result<HostTensor> {
        let shape = shape.into();
        if shape.elements()? != values.len() as u64 {
            return Err(Error::invalid_argument(format!("{} strings do not make shape {shape}", values.len())));
        }
        Ok(HostTensor { data_type: DataType::String, shape, data: TensorData::Strings(values.into()) })
    }

    /// A tensor that is only carried along: an encoded TensorProto.
    pub fn opaque(data_type: DataType, shape: Shape, encoded: &[u8]) -> HostTensor {
        HostTensor { data_type, shape, data: TensorData::Opaque(encoded.into()) }
    }

    /// The element type.
    pub fn data_type(&self) -> DataType {
        self.data_type
    }

    /// The shape.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// The elements as they are held.
    pub fn data(&self) -> &TensorData {
        &self.data
    }

    /// The number of elements.
    pub fn elements(&self) -> u64 {
        self.shape.elements().expect("checked when it was made")
    }

    /// Bytes of all the elements, as a kernel would see them (a splat counts in full); of strings their characters, of opaque
    /// tensors the bytes that hold them.
    pub fn byte_len(&self) -> u64 {
        match (self.data_type.bytes_of(self.elements()), &self.data) {
            (Some(bytes), _) => bytes,
            (None, TensorData::Strings(strings)) => strings.iter().map(|string| string.len() as u64).sum(),
            (None, _) => self.bytes().map_or(0, |bytes| bytes.len() as u64),
        }
    }

    /// The same elements in another shape.
    ///
    /// # Errors
    /// INVALID_ARGUMENT where the number of elements differs.
    pub fn reshaped(&self, shape: Shape) -> Result<HostTensor> {
        if shape.elements()? != self.elements() {
            return Err(Error::invalid_argument(format!("shape {} cannot become {shape}", self.shape)));
        }
        Ok(HostTensor { shape, ..self.clone() })
    }

    /// The single element that all elements equal, in bytes, where the tensor is held that way or has one element.
    pub fn splat(&self) -> Option<&[u8]> {
        let size = self.data_type.size()?;
        match &self.data {
            TensorData::Repeated(leading) if leading.len() == size => Some(leading),
            TensorData::Dense(_) if self.elements() == 1 => self.bytes(),
            _ => None,
        }
    }

    /// The raw bytes, where all elements are held.
    pub fn bytes(&self) -> Option<&[u8]> {
        match &self.data {
            TensorData::Dense(data) => Some(data.0.bytes()),
            _ => None,
        }
    }

    /// The bytes as they are held, where all elements are: row-major, or in [`HostTensor::panels`].
    pub fn held(&self) -> Option<&[u8]> {
        match &self.data {
            TensorData::Panels(data) => Some(data.buffer.bytes()),
            _ => self.bytes(),
        }
    }

    /// The panels in which the elements are held, where they are.
    pub fn panels(&self) -> Option<Panels> {
        match &self.data {
            TensorData::Panels(data) => Some(data.panels),
            _ => None,
        }
    }

    /// The same tensor, held as a matrix of `panels.columns` columns in panels: the order in which a kernel reads it. It takes as many bytes
    /// as row-major. Elements are shared where they are held so already.
    ///
    /// # Errors
    /// INVALID_ARGUMENT where the elements are no rows of such a matrix; as [`HostTensor::dense`].
    pub fn in_panels(&self, panels: Panels) -> Result<HostTensor> {
        if self.panels() == Some(panels) {
            return Ok(self.clone());
        }
        if !panels.divide(self.elements()) {
            return Err(Error::invalid_argument(format!("a tensor of shape {} in panels of {} columns", self.shape, panels.columns)));
        }
        let (size, dense) = (element_size(self.data_type)?, self.dense()?);
        let from = dense.bytes().unwrap_or_default();
        let mut buffer = Buffer::zeroed(from.len())?;
        let to = buffer.bytes_mut();
        PanelData::each_run(panels, from.len(), size, |plain, held| to[held].copy_from_slice(&from[plain]));
        Ok(HostTensor { data_type: self.data_type, shape: self.shape.clone(), data: TensorData::Panels(PanelData { buffer, panels }) })
    }

    /// The raw bytes to write, where all elements are held. Copies them first if they are shared.
    pub fn bytes_mut(&mut self) -> Option<&mut [u8]> {
        match &mut self.data {
            TensorData::Dense(data) => Some(data.0.bytes_mut()),
            _ => None,
        }
    }

    /// The same tensor with every element held.
    ///
    /// # Errors
    /// UNIMPLEMENTED for strings and opaque tensors.
    pub fn dense(&self) -> Result<HostTensor> {
        match &self.data {
            TensorData::Dense(_) => Ok(self.clone()),
            TensorData::Repeated(_) | TensorData::Panels(_) => {
                let mut tensor = HostTensor::zeros(self.data_type, self.shape.clone())?;
                self.write_to(tensor.bytes_mut().expect("zeros are dense"))?;
                Ok(tensor)
            }
            _ => Err(Error::unimplemented(format!("a {} tensor has no elements of fixed size", self.data_type))),
        }
    }

    /// Writes every element into `out`.
    ///
    /// # Errors
    /// INVALID_ARGUMENT where `out` is not exactly as long as the elements; UNIMPLEMENTED for strings and opaque tensors.
    pub fn write_to(&self, out: &mut [u8]) -> Result<()> {
        if out.len() as u64 != self.byte_len() {
            return Err(Error::invalid_argument(format!(
                "{} bytes cannot hold a {} tensor of shape {}",
                out.len(),
                self.data_type,
                self.shape
            )));
        }
        match &self.data {
            TensorData::Dense(data) => out.copy_from_slice(data.0.bytes()),
            TensorData::Repeated(leading) => {
                let size = element_size(self.data_type)?;
                let (head, tail) = out.split_at_mut(leading.len());
                head.copy_from_slice(leading);
                let last = &leading[leading.len() - size..];
                tail.chunks_exact_mut(size).for_each(|element| element.copy_from_slice(last));
            }
            TensorData::Panels(data) => {
                let from = data.buffer.bytes();
                let size = element_size(self.data_type)?;
                PanelData::each_run(data.panels, from.len(), size, |plain, held| out[plain].copy_from_slice(&from[held]));
            }
            _ => return Err(Error::unimplemented(format!("a {} tensor has no elements of fixed size", self.data_type))),
        }
        Ok(())
    }

    /// The elements, where all are held and are of type `T`.
    ///
    /// # Errors
    /// INVALID_ARGUMENT where the type differs; FAILED_PRECONDITION where the tensor is compressed (see [`HostTensor::dense`]).
    pub fn as_slice<T: Element>(&self) -> Result<&[T]> {
        self.expect_type(T::DATA_TYPE)?;
        let bytes = self.bytes().ok_or_else(|| Error::failed_precondition("the tensor is compressed: call dense() first"))?;
        Ok(bytemuck::cast_slice(bytes))
    }

    /// The elements to write, where all are held and are of type `T`.
    ///
    /// # Errors
    /// As [`HostTensor::as_slice`].
    pub fn as_slice_mut<T: Element>(&mut self) -> Result<&mut [T]> {
        self.expect_type(T::DATA_TYPE)?;
        let bytes = self.bytes_mut().ok_or_else(|| Error::failed_precondition("the tensor is compressed: call dense() first"))?;
        Ok(bytemuck::cast_slice_mut(bytes))
    }

    /// All elements as a vector, compressed or not.
    ///
    /// # Errors
    /// INVALID_ARGUMENT where the type differs.
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>> {
        self.expect_type(T::DATA_TYPE)?;
        self.dense()?.as_slice().map(<[T]>::to_vec)
    }

    /// The elements of an integer tensor (all but uint64) as int64, for rules that shapes depend on. None for other types and
    /// for tensors too large to be a shape.
    pub fn to_i64s(&self) -> Option<Vec<i64>> {
        const MAX_ELEMENTS: u64 = 1 << 16;
        if self.elements() > MAX_ELEMENTS {
            return None;
        }
        match self.data_type {
            DataType::Int32 => Some(self.to_vec::<i32>().ok()?.into_iter().map(i64::from).collect()),
            DataType::Int64 => self.to_vec::<i64>().ok(),
            DataType::Int8 => Some(self.to_vec::<i8>().ok()?.into_iter().map(i64::from).collect()),
            DataType::Int16 => Some(self.to_vec::<i16>().ok()?.into_iter().map(i64::from).collect()),
            DataType::Uint8 => Some(self.to_vec::<u8>().ok()?.into_iter().map(i64::from).collect()),
            DataType::Uint16 => Some(self.to_vec::<u16>().ok()?.into_iter().map(i64::from).collect()),
            DataType::Uint32 => Some(self.to_vec::<u32>().ok()?.into_iter().map(i64::from).collect()),
            _ => None,
        }
    }

    /// The strings of a string tensor.
    pub fn strings(&self) -> Option<&[Vec<u8>]> {
        match &self.data {
            TensorData::Strings(strings) => Some(strings),
            _ => None,
        }
    }

    fn expect_type(&self, data_type: DataType) -> Result<()> {
        if self.data_type == data_type {
            return Ok(());
        }
        Err(Error::invalid_argument(format!("the tensor is {}, not {data_type}", self.data_type)))
    }
}

/// Equal type, shape and element bits, however they are held.
impl PartialEq for HostTensor {
    fn eq(&self, other: &HostTensor) -> bool {
        if self.data_type != other.data_type || self.shape != other.shape {
            return false;
        }
        match (&self.data, &other.data) {
            (TensorData::Strings(a), TensorData::Strings(b)) => a == b,
            (TensorData::Opaque(a), TensorData::Opaque(b)) => a == b,
            (TensorData::Repeated(a), TensorData::Repeated(b)) => a == b,
            (TensorData::Panels(a), TensorData::Panels(b)) if a.panels == b.panels => same_bytes(a.buffer.bytes(), b.buffer.bytes()),
            // One that is held otherwise: spread.
            (TensorData::Panels(_), TensorData::Dense(_) | TensorData::Repeated(_) | TensorData::Panels(_)) => {
                self.dense().is_ok_and(|dense| dense == *other)
            }
            (TensorData::Dense(_) | TensorData::Repeated(_), TensorData::Panels(_)) => other.dense().is_ok_and(|dense| *self == dense),
            (TensorData::Dense(a), TensorData::Dense(b)) => same_bytes(a.0.bytes(), b.0.bytes()),
            (TensorData::Dense(dense), TensorData::Repeated(leading)) | (TensorData::Repeated(leading), TensorData::Dense(dense)) => {
                let Some(size) = self.data_type.size() else { return false };
                let (head, tail) = dense.0.bytes().split_at(leading.len());
                head == &leading[..] && tail.chunks_exact(size).all(|element| element == &leading[leading.len() - size..])
            }
            _ => false,
        }
    }
}

impl fmt::Debug for HostTensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.data_type, self.shape)?;
        macro_rules! values {
            ($($data_type:ident => $rust:ty),*) => {
                match self.data_type {
                    $(DataType::$data_type if self.elements() <= 16 => {
                        if let Ok(values) = self.to_vec::<$rust>() { write!(f, "{values:?}")?; }
                    })*
                    _ => {}
                }
            };
        }
        values!(
            Float => f32, Double => f64, Int8 => i8, Int16 => i16, Int32 => i32, Int64 => i64, Uint8 => u8, Uint16 => u16, Uint32 => u32,
            Uint64 => u64
        );
        Ok(())
    }
}

/// Whether they are equal; of the same memory nothing is read.
fn same_bytes(a: &[u8], b: &[u8]) -> bool {
    std::ptr::eq(a, b) || a == b
}

fn element_size(data_type: DataType) -> Result<usize> {
    data_type.size().ok_or_else(|| Error::unimplemented(format!("{data_type} elements have no fixed size")))
}

fn byte_len(data_type: DataType, shape: &Shape) -> Result<usize> {
    element_size(data_type)?;
    data_type
        .bytes_of(shape.elements()?)
        .and_then(|bytes| usize::try_from(bytes).ok())
        .filter(|bytes| *bytes <= isize::MAX as usize)
        .ok_or_else(|| Error::invalid_argument(format!("a {data_type} tensor of shape {shape} does not fit the address space")))
}

fn normalise_bools(data_type: DataType, bytes: &mut [u8]) {
    if data_type == DataType::Bool {
        bytes.iter_mut().for_each(|byte| *byte = u8::from(*byte != 0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_splat_of_a_terabyte_costs_four_bytes() {
        let tensor = HostTensor::from_leading(DataType::Float, Shape::from([1 << 38]), &1f32.to_le_bytes()).unwrap();
        assert_eq!(tensor.byte_len(), 1 << 40);
        assert_eq!(tensor.splat(), Some(&1f32.to_le_bytes()[..]));
        let ints = HostTensor::from_leading(DataType::Int32, Shape::from([1 << 50]), &[]).unwrap();
        assert_eq!(ints.to_i64s(), None);
        assert_eq!(ints.dense().unwrap_err().code(), plimsoll_base::Code::ResourceExhausted);
    }

    #[test]
    fn leading_elements_follow_tensor_protos_rule() {
        let bytes = |values: &[i32]| bytemuck::cast_slice::<i32, u8>(values).to_vec();
        let make = |dims: &[u64], values: &[i32]| HostTensor::from_leading(DataType::Int32, Shape::new(dims), &bytes(values)).unwrap();
        assert_eq!(make(&[3], &[]).to_vec::<i32>().unwrap(), [0, 0, 0]);
        assert_eq!(make(&[3], &[5]).to_vec::<i32>().unwrap(), [5, 5, 5]);
        assert_eq!(make(&[4], &[1, 2]).to_vec::<i32>().unwrap(), [1, 2, 2, 2]);
        assert_eq!(make(&[2], &[1, 2, 3]).to_vec::<i32>().unwrap(), [1, 2]);
        assert_eq!(make(&[0], &[1]).to_vec::<i32>().unwrap(), [0; 0]);
        assert_eq!(make(&[4], &[1, 2, 2]), make(&[4], &[1, 2, 2, 2]));
        assert_ne!(make(&[4], &[1, 2, 3]), make(&[4], &[1, 2, 2, 2]));
    }

    #[test]
    fn memory_begins_at_a_line_and_is_shared_until_written() {
        let tensor = HostTensor::from_slice([3], &[1f32, 2.0, 3.0]).unwrap();
        assert_eq!(tensor.bytes().unwrap().as_ptr() as usize % 64, 0);
        let mut copy = tensor.clone();
        copy.as_slice_mut::<f32>().unwrap()[0] = 9.0;
        assert_eq!(tensor.as_slice::<f32>().unwrap(), [1.0, 2.0, 3.0]);
    }

    #[test]
    fn memory_of_others_is_read_where_it_is_and_copied_for_a_write() {
        let memory: Arc<Vec<u8>> = Arc::new(bytemuck::cast_slice(&[1f32, 2.0, 3.0, 4.0]).to_vec());
        struct From(Arc<Vec<u8>>, usize);
        impl AsRef<[u8]> for From {
            fn as_ref(&self) -> &[u8] {
                &self.0[self.1..][..8]
            }
        }
        let of = |at: usize, data_type| HostTensor::from_owner(data_type, Shape::from([2]), Arc::new(From(memory.clone(), at)));
        let start = (0..4).find(|at| memory[*at..].as_ptr().align_offset(4) == 0).unwrap();
        let mut tensor = of(start, DataType::Float).unwrap();
        assert_eq!(tensor.bytes().unwrap().as_ptr(), memory[start..].as_ptr());
        tensor.bytes_mut().unwrap().fill(0);
        assert_eq!((tensor.to_vec::<f32>().unwrap(), &memory[..4]), (vec![0.0, 0.0], &1f32.to_le_bytes()[..]));
        // What is not aligned is copied.
        let other = of(start + 1, DataType::Float).unwrap();
        assert_eq!(other.bytes().unwrap(), &memory[start + 1..][..8]);
        assert_eq!(other.bytes().unwrap().as_ptr() as usize % 64, 0);
        assert!(of(start, DataType::Double).is_err());
    }

    #[test]
    fn a_tensor_in_panels_is_the_same_tensor() {
        let values: Vec<f32> = (0..3 * 5 * 21).map(|value| value as f32).collect();
        let plain = HostTensor::from_slice([3, 5, 21], &values).unwrap();
        let panels = Panels { columns: 21, lanes: 4, vectors: 2 };
        let laid = plain.in_panels(panels).unwrap();
        assert_eq!((laid.bytes(), laid.panels(), laid.byte_len()), (None, Some(panels), plain.byte_len()));
        // Six vectors: three panels of 8, 8 and 5 columns.
        let held: &[f32] = bytemuck::cast_slice(laid.held().unwrap());
        assert_eq!((&held[..9], held[15 * 16]), (&[0., 1., 2., 3., 4., 5., 6., 7., 21.][..], 16.0));
        assert_eq!((laid.to_vec::<f32>().unwrap(), laid.held().unwrap().as_ptr() as usize % 64), (values, 0));
        assert_eq!(laid.in_panels(panels).unwrap().held().unwrap().as_ptr(), laid.held().unwrap().as_ptr());
        let other = laid.in_panels(Panels { lanes: 16, ..panels }).unwrap();
        assert_eq!(laid, plain);
        assert_eq!(plain, laid);
        assert_eq!(other, laid);
        assert_ne!(other.panels(), laid.panels());
        let mut changed = plain.clone();
        changed.as_slice_mut::<f32>().unwrap()[7] = 0.5;
        assert_ne!(laid, changed);
        assert_ne!(changed, laid);
        assert_ne!(laid, changed.in_panels(panels).unwrap());
        // The shape says nothing about the rows of panels.
        assert_eq!(laid.reshaped([15, 21].into()).unwrap(), plain.reshaped([15, 21].into()).unwrap());
        // A splat is held in full, others than numbers are not.
        let splat = HostTensor::from_leading(DataType::Half, Shape::from([2, 8]), &[1, 2]).unwrap();
        assert_eq!(splat.in_panels(Panels { columns: 8, lanes: 2, vectors: 2 }).unwrap(), splat);
        assert!(plain.in_panels(Panels { columns: 20, ..panels }).is_err() && plain.in_panels(Panels { lanes: 0, ..panels }).is_err());
        let text = HostTensor::from_strings([8], vec![Vec::new(); 8]).unwrap();
        assert!(text.in_panels(Panels { columns: 8, lanes: 2, vectors: 2 }).is_err());
    }

    #[test]
    fn refuses_wrong_lengths_and_types() {
        assert!(HostTensor::from_slice([2], &[1f32]).is_err());
        assert!(HostTensor::zeros(DataType::String, Shape::scalar()).is_err());
        assert!(HostTensor::zeros(DataType::Double, Shape::from([1 << 61])).is_err());
        assert!(HostTensor::scalar(1f32).as_slice::<i32>().is_err());
    }
}
