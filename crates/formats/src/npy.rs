//! numpy's `.npy` files, versions 1 to 3 of the format, to host tensors and back.

use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;

use plimsoll_base::{DataType, Error, Input, Result};
use plimsoll_graph::{HostTensor, Shape};

use crate::elements::{for_each_piece, swap_bytes};

const MAGIC: &[u8] = b"\x93NUMPY";

/// The longest header that is read: numpy writes longer ones for records of many fields only, which no tensor has.
const LONGEST_HEADER: u64 = 1 << 20;

/// The description of the elements at the beginning of a file.
#[derive(Clone, Debug, PartialEq)]
pub struct Layout {
    /// Their type.
    pub data_type: DataType,
    /// The array's shape.
    pub shape: Shape,
    /// Whether the first byte of a number is its highest.
    pub is_big_endian: bool,
    /// Whether the first index runs fastest, where there are several.
    pub is_fortran_order: bool,
    /// The byte of the file at which the elements begin. They go on to the file's end.
    pub begin: u64,
}

impl Layout {
    /// Reads the beginning of a file through `read_at`, which fills a buffer with the file's bytes from an offset on. The
    /// elements are not looked at.
    ///
    /// # Errors
    /// DATA_LOSS where this is no `.npy` file; UNIMPLEMENTED for types that no tensor has (text, objects, records); the error of
    /// `read_at`.
    pub fn read(mut read_at: impl FnMut(&mut [u8], u64) -> Result<()>) -> Result<Layout> {
        let mut start = [0; 10];
        read_at(&mut start, 0)?;
        if !start.starts_with(MAGIC) {
            return Err(broken("it does not begin with \\x93NUMPY"));
        }
        let (length, begin) = match start {
            [.., 1, _, a, b] => (u64::from(u16::from_le_bytes([a, b])), 10),
            [.., 2 | 3, _, a, b] => {
                let mut high = [0; 2];
                read_at(&mut high, 10)?;
                (u64::from(u32::from_le_bytes([a, b, high[0], high[1]])), 12)
            }
            [.., version, _, _, _] => return Err(broken(&format!("version {version} is not read here"))),
        };
        if length > LONGEST_HEADER {
            return Err(broken(&format!("its header is {length} bytes long")));
        }
        let mut header = vec![0; length as usize];
        read_at(&mut header, begin)?;
        let header = std::str::from_utf8(&header).map_err(|_| broken("its header is not UTF-8"))?;
        let header = Header::parse(header)
            .ok_or_else(|| broken(&format!("its header says '{}'", header.chars().take(100).collect::<String>().escape_debug())))?;
        let (data_type, is_big_endian) = element_type(&header.descr)?;
        let is_fortran_order = header.fortran_order;
        Ok(Layout { data_type, shape: Shape::new(header.shape), is_big_endian, is_fortran_order, begin: begin + length })
    }

    /// Whether the elements take so many bytes.
    fn check_length(&self, there: u64) -> Result<()> {
        let Layout { data_type, shape, .. } = self;
        let expected = data_type.bytes_of(shape.elements()?);
        if expected == Some(there) {
            return Ok(());
        }
        let expected = expected.map_or_else(|| "more than all".to_string(), |bytes| bytes.to_string());
        Err(broken(&format!("{data_type}{shape} takes {expected} bytes and {there} are there")))
    }

    /// Whether the elements lie in another order than a tensor's.
    fn is_turned(&self) -> bool {
        self.is_big_endian || self.is_fortran_order && self.shape.rank() > 1
    }

    /// The tensor of these elements, as many as there should be.
    fn tensor(self, mut data: Vec<u8>) -> Result<HostTensor> {
        let unsized_type = || broken("its elements have no fixed size");
        if self.is_big_endian {
            swap_bytes(&mut data, self.data_type.number_size().ok_or_else(unsized_type)?);
        }
        if self.is_fortran_order && self.shape.rank() > 1 {
            data = to_row_major(&data, &self.shape, self.data_type.size().ok_or_else(unsized_type)?);
        }
        HostTensor::from_bytes(self.data_type, self.shape, &data)
    }
}

fn broken(what: &str) -> Error {
    Error::data_loss(format!("this is not a .npy file: {what}"))
}

/// Reads an array. Big-endian numbers and Fortran order are converted.
///
/// # Errors
/// DATA_LOSS where the bytes are no `.npy` file or not as many as its header says. UNIMPLEMENTED for types that no tensor has
/// (text, objects, records).
pub fn read(bytes: &[u8]) -> Result<HostTensor> {
    let layout = Layout::read(|buffer, offset| {
        let there = bytes.get(offset as usize..).and_then(|rest| rest.get(..buffer.len()));
        buffer.copy_from_slice(there.ok_or_else(|| broken("it is cut off"))?);
        Ok(())
    })?;
    let data = &bytes[layout.begin as usize..];
    layout.check_length(data.len() as u64)?;
    if !layout.is_turned() {
        return HostTensor::from_bytes(layout.data_type, layout.shape, data);
    }
    layout.tensor(data.to_vec())
}

/// Reads the array of a file that the command line names, or of an anonymous pipe. Nothing is read and no memory taken before the
/// file's length, its header and the memory of this machine are found to agree.
///
/// # Errors
/// As [`read`], with the path; the system's error; RESOURCE_EXHAUSTED where this machine has not so much memory.
pub fn read_file(path: &Path) -> Result<HostTensor> {
    read_input(plimsoll_base::open_input(path), path)
}

/// As [`read_file`], for a plain file only.
///
/// # Errors
/// As [`read_file`].
pub fn read_plain_file(path: &Path) -> Result<HostTensor> {
    let open = || {
        let file = plimsoll_base::open_file(path)?;
        let length = file.metadata()?.len();
        Ok(Input::Plain(file, length))
    };
    read_input(open(), path)
}

fn read_input(input: std::io::Result<Input>, path: &Path) -> Result<HostTensor> {
    /// A pipe that gives more is taken for a mistake.
    const MOST: u64 = 2 << 30;
    let failed = |error: std::io::Error| plimsoll_base::file_error(path, &error);
    let shown = |error: Error| error.context(path.display());
    let (mut file, length) = match input.map_err(failed)? {
        Input::Plain(file, length) => (file, length),
        Input::Pipe(pipe) => return read(&plimsoll_base::read_pipe(pipe, MOST).map_err(failed)?).map_err(shown),
    };
    let layout = Layout::read(|buffer, offset| {
        if offset + buffer.len() as u64 > length {
            return Err(broken("it is cut off"));
        }
        file.seek(SeekFrom::Start(offset)).and_then(|_| file.read_exact(buffer)).map_err(|error| Error::data_loss(error.to_string()))
    });
    let layout = layout.map_err(shown)?;
    let there = length.saturating_sub(layout.begin);
    layout.check_length(there).map_err(shown)?;
    let is_as_tensors = !layout.is_turned() && layout.data_type != DataType::Bool;
    plimsoll_base::check_memory(if is_as_tensors { there } else { there.saturating_mul(2) }).map_err(failed)?;
    file.seek(SeekFrom::Start(layout.begin)).map_err(failed)?;
    if is_as_tensors {
        let mut tensor = HostTensor::zeros(layout.data_type, layout.shape)?;
        file.read_exact(tensor.bytes_mut().unwrap_or_default()).map_err(failed)?;
        return Ok(tensor);
    }
    let mut data = vec![0; there as usize];
    file.read_exact(&mut data).map_err(failed)?;
    layout.tensor(data).map_err(shown)
}

/// Writes an array, row-major and little-endian. A compressed tensor is not made whole in memory.
///
/// # Errors
/// UNIMPLEMENTED for types that numpy does not have; the error of `out`.
pub fn write(tensor: &HostTensor, out: &mut impl Write) -> Result<()> {
    let data_type = tensor.data_type();
    let descr = TYPES.iter().find(|(_, other)| *other == data_type).map(|(descr, _)| *descr);
    let descr = descr
        .ok_or_else(|| Error::unimplemented(format!("numpy has no type for {data_type}")).with_remedy("cast it to float or int32 first"))?;
    let order = if data_type.size() == Some(1) { '|' } else { '<' };
    let dims: String = tensor.shape().iter().map(|dim| format!("{dim}, ")).collect();
    let dims = if tensor.shape().rank() == 1 { dims.trim_end() } else { dims.trim_end_matches(", ") };
    let mut header = format!("{{'descr': '{order}{descr}', 'fortran_order': False, 'shape': ({dims}), }}");
    let wide = header.len() > 65_000;
    let fixed = MAGIC.len() + if wide { 6 } else { 4 };
    let total = (fixed + header.len() + 1).next_multiple_of(64);
    header.extend(std::iter::repeat_n(' ', total - fixed - header.len() - 1));
    header.push('\n');
    let mut start = MAGIC.to_vec();
    if wide {
        start.extend([2, 0]);
        start.extend((header.len() as u32).to_le_bytes());
    } else {
        start.extend([1, 0]);
        start.extend((header.len() as u16).to_le_bytes());
    }
    start.extend(header.as_bytes());
    let mut put = |bytes: &[u8]| out.write_all(bytes).map_err(|error| Error::data_loss(format!("writing an array failed: {error}")));
    put(&start)?;
    for_each_piece(tensor, put)
}

const TYPES: [(&str, DataType); 15] = [
    ("b1", DataType::Bool),
    ("i1", DataType::Int8),
    ("i2", DataType::Int16),
    ("i4", DataType::Int32),
    ("i8", DataType::Int64),
    ("u1", DataType::Uint8),
    ("u2", DataType::Uint16),
    ("u4", DataType::Uint32),
    ("u8", DataType::Uint64),
    ("f2", DataType::Half),
    ("f4", DataType::Float),
    ("f8", DataType::Double),
    ("c8", DataType::Complex64),
    ("c16", DataType::Complex128),
    // The bytes that numpy writes for a bfloat16 array of ml_dtypes.
    ("V2", DataType::Bfloat16),
];

/// The type that a `descr` names, and whether its numbers are big-endian.
fn element_type(descr: &str) -> Result<(DataType, bool)> {
    let unknown = || {
        Error::unimplemented(format!("arrays of type '{}' are not read", descr.escape_debug()))
            .with_remedy("save it as a number type, array.astype('float32')")
    };
    let (order, name) = descr.split_at_checked(1).ok_or_else(unknown)?;
    let (_, data_type) = TYPES.iter().find(|(other, _)| *other == name).ok_or_else(unknown)?;
    match order {
        "<" | "|" | "=" => Ok((*data_type, false)),
        ">" => Ok((*data_type, true)),
        _ => Err(unknown()),
    }
}

/// The elements of a column-major array, row-major.
fn to_row_major(data: &[u8], shape: &Shape, size: usize) -> Vec<u8> {
    if data.is_empty() {
        return Vec::new();
    }
    let mut out = Vec::with_capacity(data.len());
    let dims: Vec<usize> = shape.iter().map(|dim| *dim as usize).collect();
    let strides: Vec<usize> = dims.iter().scan(size, |stride, dim| Some(std::mem::replace(stride, *stride * dim))).collect();
    let (mut index, mut offset) = (vec![0; dims.len()], 0);
    while out.len() < data.len() {
        out.extend_from_slice(&data[offset..offset + size]);
        for axis in (0..dims.len()).rev() {
            index[axis] += 1;
            offset += strides[axis];
            if index[axis] < dims[axis] {
                break;
            }
            offset -= strides[axis] * dims[axis];
            index[axis] = 0;
        }
    }
    out
}

/// The dictionary at the start of a file.
#[derive(Debug, PartialEq)]
struct Header {
    descr: String,
    fortran_order: bool,
    shape: Vec<u64>,
}

impl Header {
    /// Reads `{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }`: the keys in any order, each once.
    fn parse(text: &str) -> Option<Header> {
        let mut rest = text.trim().strip_prefix('{')?.strip_suffix('}')?.trim_start();
        let (mut descr, mut fortran_order, mut shape) = (None, None, None);
        while !rest.is_empty() {
            let (key, after) = quoted(rest)?;
            let value = after.trim_start().strip_prefix(':')?.trim_start();
            rest = match key {
                "descr" if descr.is_none() => {
                    let (text, after) = quoted(value)?;
                    descr = Some(text.to_string());
                    after
                }
                "fortran_order" if fortran_order.is_none() => {
                    let flag = value.starts_with("True");
                    fortran_order = Some(flag);
                    value.strip_prefix(if flag { "True" } else { "False" })?
                }
                "shape" if shape.is_none() => {
                    let (dims, after) = value.strip_prefix('(')?.split_once(')')?;
                    let dims = dims.trim().strip_suffix(',').unwrap_or(dims).trim();
                    // Python 2 wrote long integers with an L behind them.
                    let dim = |dim: &str| dim.trim().strip_suffix('L').unwrap_or(dim.trim()).parse().ok();
                    shape = Some(if dims.is_empty() { Vec::new() } else { dims.split(',').map(dim).collect::<Option<_>>()? });
                    after
                }
                _ => return None,
            };
            rest = rest.trim_start();
            rest = rest.strip_prefix(',').map_or(rest, str::trim_start);
        }
        Some(Header { descr: descr?, fortran_order: fortran_order?, shape: shape? })
    }
}

fn quoted(text: &str) -> Option<(&str, &str)> {
    let quote = text.chars().next().filter(|quote| matches!(quote, '\'' | '"'))?;
    text[1..].split_once(quote)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(header: &str, data: &[u8]) -> Vec<u8> {
        [MAGIC, &[1, 0], &(header.len() as u16).to_le_bytes(), header.as_bytes(), data].concat()
    }

    fn round_trip(tensor: &HostTensor) {
        let mut bytes = Vec::new();
        write(tensor, &mut bytes).unwrap();
        assert_eq!((bytes.len() as u64 - tensor.byte_len()) % 64, 0);
        assert_eq!(&read(&bytes).unwrap(), tensor);
        for end in 0..bytes.len() {
            assert!(read(&bytes[..end]).is_err());
        }
        bytes.push(0);
        assert!(read(&bytes).is_err());
    }

    #[test]
    fn keeps_types_and_shapes() {
        round_trip(&HostTensor::scalar(1.5f32));
        round_trip(&HostTensor::from_slice([3], &[1i64, -2, 3]).unwrap());
        round_trip(&HostTensor::from_slice([2, 1, 3], &[1u8, 2, 3, 4, 5, 6]).unwrap());
        round_trip(&HostTensor::from_bools([2], &[true, false]).unwrap());
        round_trip(&HostTensor::zeros(DataType::Half, Shape::from([4, 0])).unwrap());
        round_trip(
            &HostTensor::from_leading(DataType::Double, Shape::from([9]), &[&1f64.to_le_bytes()[..], &2f64.to_le_bytes()].concat())
                .unwrap(),
        );
    }

    #[test]
    fn converts_order_and_endianness() {
        let columns: Vec<u8> = [0i16, 3, 1, 4, 2, 5].iter().flat_map(|value| value.to_be_bytes()).collect();
        let tensor = read(&file("{'shape': (2L, 3), 'fortran_order': True, \"descr\": '>i2'}\n", &columns)).unwrap();
        assert_eq!(tensor, HostTensor::from_slice([2, 3], &[0i16, 1, 2, 3, 4, 5]).unwrap());
    }

    #[test]
    fn refuses_what_is_no_array() {
        let good = "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }";
        assert!(read(&file(good, &[0; 4])).is_ok());
        let none = "{'descr': '>f4', 'fortran_order': True, 'shape': (0, 9223372036854775807, 9223372036854775807), }";
        assert_eq!(read(&file(none, &[])).unwrap().elements(), 0);
        for (header, data) in [
            (good, &[0u8; 3][..]),
            ("{'descr': '<f4', 'fortran_order': False, 'shape': (9223372036854775807, 2), }", &[]),
            ("{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }", &[]),
            ("{'descr': '<f4', 'fortran_order': False, 'shape': (1,)", &[0; 4]),
            ("{'descr': '<f4', 'fortran_order': 0, 'shape': (1,)}", &[0; 4]),
            ("{'descr': '<f4', 'shape': (1,)}", &[0; 4]),
            ("{'descr': '|O', 'fortran_order': False, 'shape': (1,)}", &[0; 4]),
            ("{'descr': '', 'fortran_order': False, 'shape': (1,)}", &[0; 4]),
            ("{'descr': 'äf4', 'fortran_order': False, 'shape': (1,)}", &[0; 4]),
            ("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}", &[0; 4]),
        ] {
            assert!(read(&file(header, data)).is_err(), "{header}");
        }
        assert!(write(&HostTensor::from_strings([1], vec![vec![1]]).unwrap(), &mut Vec::new()).is_err());
    }
}
