//! Examples in numpy's `.npy` files, an array for each component, read row by row.

use std::path::Path;

use plimsoll::npy::Layout;
use plimsoll::{DataType, Error, HostTensor, Result};

use super::random::SplitMix64;
use super::{Component, Examples, RecordFile, Records, row_bytes_mut};

/// Arrays whose first axis counts examples: a name and a file for each component.
///
/// # Errors
/// As [`RecordFile::open`]. DATA_LOSS where a file is no `.npy` file, or is not as long as its header says. INVALID_ARGUMENT for
/// scalars, for arrays that have no examples or not as many as others, for big-endian numbers, and for Fortran order (its rows are
/// not contiguous). UNIMPLEMENTED for types that no tensor has.
pub fn open(files: &[(String, &Path)]) -> Result<Examples> {
    let mut components = Vec::with_capacity(files.len());
    let mut arrays: Vec<Array> = Vec::with_capacity(files.len());
    let mut count = None;
    for (name, path) in files {
        let (array, component, rows) = Array::open(name, path)?;
        if let (Some(count), Some(first)) = (count, arrays.first())
            && count != rows
        {
            let (path, first) = (path.display(), first.file.path().display());
            return Err(Error::invalid_argument(format!("{path} has {rows} examples (its first axis), and {first} has {count}")));
        }
        count = Some(rows);
        arrays.push(array);
        components.push(component);
    }
    Examples::from_records(components, count.unwrap_or(0), Arrays(arrays))
}

#[derive(Debug)]
struct Arrays(Vec<Array>);

#[derive(Debug)]
struct Array {
    file: RecordFile,
    /// Where the first row begins.
    begin: u64,
    data_type: DataType,
}

impl Array {
    /// The array, an example's part of it, and the number of rows.
    fn open(name: &str, path: &Path) -> Result<(Array, Component, u64)> {
        let file = RecordFile::open(path)?;
        let shown = path.display();
        let read_at = |buffer: &mut [u8], offset: u64| match offset + buffer.len() as u64 {
            end if end > file.length() => Err(Error::data_loss("this is not a .npy file: it ends within its header")),
            _ => file.read_at(buffer, offset),
        };
        let layout = Layout::read(read_at).map_err(|error| error.context(&shown))?;
        let refused = |what: &str, remedy: &str| {
            Err(Error::invalid_argument(format!("{shown} {what}")).with_remedy(format!("save it anew: np.save(file, {remedy})")))
        };
        if layout.is_fortran_order && layout.shape.rank() > 1 {
            return refused("is in Fortran order, so that an example is not in one piece", "np.ascontiguousarray(array)");
        }
        if layout.is_big_endian {
            return refused("is big-endian", "array.astype(array.dtype.newbyteorder('<'))");
        }
        let [rows, shape @ ..] = layout.shape.dims() else {
            return Err(Error::invalid_argument(format!("{shown} is a scalar, and its first axis should count examples")));
        };
        if *rows == 0 {
            return Err(Error::invalid_argument(format!("{shown} has no examples: its shape is {}", layout.shape)));
        }
        let expected = layout.data_type.bytes_of(layout.shape.elements()?).and_then(|bytes| bytes.checked_add(layout.begin));
        let what = format_args!("{}{}", layout.data_type, layout.shape);
        match expected {
            Some(end) if end == file.length() => {}
            Some(end) if end < file.length() => return Err(file.flaw(end, format!("{} bytes follow {what}", file.length() - end))),
            Some(end) => return Err(file.flaw(file.length(), format!("the file ends here, where {what} takes it to byte {end}"))),
            None => return Err(file.flaw(0, format!("no file can hold {what}"))),
        }
        let component = Component::new(name, layout.data_type, shape);
        Ok((Array { file, begin: layout.begin, data_type: layout.data_type }, component, *rows))
    }
}

impl Records for Arrays {
    fn read(&self, number: u64, _random: SplitMix64, batch: &mut [HostTensor], row: usize) -> Result<()> {
        for (array, target) in self.0.iter().zip(batch) {
            let target = row_bytes_mut(target, row)?;
            array.file.read_at(target, array.begin + number * target.len() as u64)?;
            if array.data_type == DataType::Bool {
                target.iter_mut().for_each(|byte| *byte = u8::from(*byte != 0));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::testing::Folder;
    use crate::data::{BatchSource, InOrder, Shuffled};
    use plimsoll::Code;

    fn npy(tensor: &HostTensor) -> Vec<u8> {
        let mut bytes = Vec::new();
        plimsoll::npy::write(tensor, &mut bytes).unwrap();
        bytes
    }

    fn file(header: &str, data: &[u8]) -> Vec<u8> {
        [b"\x93NUMPY\x01\x00", &(header.len() as u16).to_le_bytes()[..], header.as_bytes(), data].concat()
    }

    fn open_files(folder: &Folder, files: &[(&str, Vec<u8>)]) -> Result<Examples> {
        let paths: Vec<_> = files.iter().map(|(name, bytes)| (name.to_string(), folder.write(&format!("{name}.npy"), bytes))).collect();
        open(&paths.iter().map(|(name, path)| (name.clone(), path.as_path())).collect::<Vec<_>>())
    }

    #[test]
    fn files_give_what_the_same_arrays_in_memory_give() {
        let x = HostTensor::from_slice([5, 2, 3], &(0..30).map(|value| value as f32).collect::<Vec<_>>()).unwrap();
        let y = HostTensor::from_slice([5], &[10i64, 11, 12, 13, 14]).unwrap();
        let none = HostTensor::zeros(DataType::Double, plimsoll::Shape::from([5, 0])).unwrap();
        let folder = Folder::new();
        let files = open_files(&folder, &[("x", npy(&x)), ("y", npy(&y)), ("none", npy(&none))]).unwrap();
        let memory = Examples::new(vec![("x", x), ("y", y), ("none", none)]).unwrap();
        assert_eq!((files.count(), files.components()), (5, memory.components()));
        let batch = |examples: &Examples| {
            let mut batch = examples.batch(12).unwrap();
            Shuffled::new(examples.clone(), 3).unwrap().next_into(&mut batch).unwrap();
            batch
        };
        assert_eq!(batch(&files), batch(&memory));
    }

    #[test]
    fn bools_are_0_or_1_and_one_axis_has_no_order() {
        let folder = Folder::new();
        let header = "{'descr': '|b1', 'fortran_order': True, 'shape': (3,)}";
        let examples = open_files(&folder, &[("x", file(header, &[0, 1, 7]))]).unwrap();
        let mut batch = examples.batch(3).unwrap();
        InOrder::new(examples).next_into(&mut batch).unwrap();
        assert_eq!(batch[0], HostTensor::from_bools([3], &[false, true, true]).unwrap());
    }

    #[test]
    fn what_cannot_be_read_row_by_row_is_said() {
        let folder = Folder::new();
        let of = |descr: &str, fortran: &str, shape: &str, data: usize| {
            file(&format!("{{'descr': '{descr}', 'fortran_order': {fortran}, 'shape': {shape}}}"), &vec![0; data])
        };
        let cases = [
            (of("<f4", "True", "(2, 3)", 24), Code::InvalidArgument, "x.npy is in Fortran order"),
            (of(">f4", "False", "(2, 3)", 24), Code::InvalidArgument, "x.npy is big-endian"),
            (of("<f4", "False", "()", 4), Code::InvalidArgument, "x.npy is a scalar"),
            (of("<f4", "False", "(0, 3)", 0), Code::InvalidArgument, "x.npy has no examples: its shape is [0,3]"),
            (of("<U4", "False", "(2,)", 32), Code::Unimplemented, "x.npy: arrays of type '<U4'"),
            (of("<f4", "False", "(2, 3)", 23), Code::DataLoss, "x.npy, byte 90: the file ends here, where float[2,3] takes it to byte 91"),
            (of("<f4", "False", "(2, 3)", 25), Code::DataLoss, "x.npy, byte 91: 1 bytes follow float[2,3]"),
            (of("<f4", "False", "(9223372036854775807, 4)", 8), Code::InvalidArgument, ""),
            (of("<f4", "False", "(4611686018427387904,)", 8), Code::DataLoss, "byte 0: no file can hold"),
            (b"\x93NUMPY\x01".to_vec(), Code::DataLoss, "x.npy: this is not a .npy file: it ends within its header"),
            (b"\x93NUMPY\x02\x00\xff\xff\xff\xff".to_vec(), Code::DataLoss, "header is 4294967295 bytes long"),
            (b"PK\x03\x04 and more".to_vec(), Code::DataLoss, "does not begin with"),
            (Vec::new(), Code::DataLoss, "ends within its header"),
        ];
        for (bytes, code, fragment) in cases {
            let error = open_files(&folder, &[("x", bytes)]).unwrap_err();
            assert!(error.code() == code && error.message().contains(fragment), "{error}\n{fragment}");
        }
        let error = open_files(&folder, &[("x", of("<f4", "False", "(2,)", 8)), ("y", of("<f4", "False", "(3,)", 12))]).unwrap_err();
        assert!(
            error.message().contains("y.npy has 3 examples (its first axis), and") && error.message().ends_with("x.npy has 2"),
            "{error}"
        );
        assert!(open(&[]).unwrap_err().message().contains("no examples"));
    }
}
