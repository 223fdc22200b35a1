//! Model files of other programs: told apart by their first and last bytes, or by their names, and answered with the line that
//! exports them to a SavedModel.

use std::path::Path;

use plimsoll_base::{Error, Result};

use crate::wire::{Payload, Reader};

/// A kind of model file that is not read here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Foreign {
    /// A model of Keras 3 (`.keras`).
    Keras,
    /// A model in HDF5, as Keras 2 saved it (`.h5`).
    Hdf5,
    /// Weights alone in HDF5 (`.weights.h5`).
    Weights,
    /// A model of TensorFlow Lite.
    TfLite,
    /// A model of ONNX.
    Onnx,
    /// Tensors or a program that PyTorch saved (`.pt`, `.pth`).
    Torch,
    /// A program of `torch.export` (`.pt2`).
    TorchProgram,
    /// Weights alone, in the format of Hugging Face.
    SafeTensors,
    /// An array of NumPy.
    Array,
    /// Arrays of NumPy in a zip archive.
    Arrays,
    /// A SavedModel in a zip archive.
    ZippedModel,
    /// A zip archive of something else.
    Zip,
    /// Something compressed with gzip: TensorFlow Hub gives SavedModels out that way.
    Gzip,
}

/// How many bytes from the start and from the end of a file [`Foreign::of_bytes`] looks at.
pub const LOOKED_AT: usize = 64 << 10;

impl Foreign {
    /// The kind that the name of a file says.
    pub fn of_name(path: &Path) -> Option<Foreign> {
        let name = path.file_name()?.to_str()?.to_ascii_lowercase();
        let kinds = [
            (".weights.h5", Foreign::Weights),
            (".keras", Foreign::Keras),
            (".h5", Foreign::Hdf5),
            (".hdf5", Foreign::Hdf5),
            (".tflite", Foreign::TfLite),
            (".onnx", Foreign::Onnx),
            (".pt2", Foreign::TorchProgram),
            (".pt", Foreign::Torch),
            (".pth", Foreign::Torch),
            (".safetensors", Foreign::SafeTensors),
        ];
        kinds.into_iter().find(|(end, _)| name.ends_with(end)).map(|(_, kind)| kind)
    }

    /// The kind that the bytes at the start and at the end of a file say; [`LOOKED_AT`] of each are enough.
    pub fn of_bytes(start: &[u8], end: &[u8]) -> Option<Foreign> {
        let has = |text: &str| [start, end].iter().any(|bytes| contains(bytes, text.as_bytes()));
        Some(match start {
            [b'P', b'K', 3, 4, ..] => match () {
                () if has("model.weights.h5") => Foreign::Keras,
                () if has("saved_model.pb") => Foreign::ZippedModel,
                () if has("serialized_exported_program") || has("models/model.json") => Foreign::TorchProgram,
                () if has("data.pkl") => Foreign::Torch,
                () if has(".npy") => Foreign::Arrays,
                () => Foreign::Zip,
            },
            [0x89, b'H', b'D', b'F', ..] => Foreign::Hdf5,
            [_, _, _, _, b'T', b'F', b'L', b'3', ..] => Foreign::TfLite,
            [0x93, b'N', b'U', b'M', b'P', b'Y', ..] => Foreign::Array,
            [0x1f, 0x8b, 8, ..] => Foreign::Gzip,
            // A pickle of torch's number for its files.
            [0x80, _, 0x8a, 0x0a, 0x6c, 0xfc, 0x9c, ..] => Foreign::Torch,
            [_, _, _, _, 0, 0, 0, 0, b'{', b'"', ..] => Foreign::SafeTensors,
            _ if is_onnx(start) => Foreign::Onnx,
            _ => return None,
        })
    }

    /// The answer for a file of this kind, with what there is to do.
    pub fn error(self, path: &Path) -> Error {
        let shown = path.display();
        let kind = match self {
            Foreign::Keras => "a Keras model",
            Foreign::Hdf5 => "a Keras model in HDF5",
            Foreign::Weights => "the weights of a Keras model without the model",
            Foreign::TfLite => "a TensorFlow Lite model",
            Foreign::Onnx => "an ONNX model",
            Foreign::Torch => "a PyTorch file",
            Foreign::TorchProgram => "a PyTorch program",
            Foreign::SafeTensors => "weights in the safetensors format, without the model",
            Foreign::Array => "a NumPy array",
            Foreign::Arrays => "an archive of NumPy arrays",
            Foreign::ZippedModel => "a SavedModel in a zip archive",
            Foreign::Zip => "a zip archive",
            Foreign::Gzip => "compressed with gzip",
        };
        let why = match self {
            Foreign::Array | Foreign::Arrays | Foreign::Zip => "not a graph",
            _ => "which is not read here",
        };
        let error = Error::invalid_argument(format!("{shown} is {kind}, {why}"));
        match self.remedy(path) {
            (Some(folder), line) => error.with_remedy(format!("this writes the SavedModel folder {folder}:\n  {line}")),
            (None, text) => error.with_remedy(text),
        }
    }

    /// The folder that a line writes, and the line; or a text alone.
    fn remedy(self, path: &Path) -> (Option<String>, String) {
        let name = path.display().to_string();
        let stem = name.strip_suffix(".weights.h5").map_or_else(|| path.with_extension("").display().to_string(), str::to_string);
        let folder = if stem == name { format!("{name}.saved_model") } else { stem };
        let (file, out) = (in_python(&name), in_python(&folder));
        let (shell_file, shell_out, shell_onnx) = (in_shell(&name), in_shell(&folder), in_shell(&format!("{folder}.onnx")));
        let onnx = in_python(&format!("{folder}.onnx"));
        let from_onnx = format!("onnx2tf -i {shell_onnx} -o {shell_out}");
        let line = match self {
            Foreign::Keras | Foreign::Hdf5 => {
                format!("python -c \"import keras; keras.saving.load_model({file}, compile=False).export({out})\"")
            }
            Foreign::Weights => {
                format!("python -c \"from YOUR_MODULE import model; model.load_weights({file}); model.export({out})\"")
            }
            Foreign::Onnx => format!("onnx2tf -i {shell_file} -o {shell_out}"),
            Foreign::TfLite => format!("python -m tf2onnx.convert --tflite {shell_file} --output {shell_onnx} && {from_onnx}"),
            Foreign::Torch => format!(
                "python -c \"import torch; model = torch.load({file}, weights_only=False); torch.onnx.export(model.eval(), (torch.zeros(INPUT_SHAPE),), {onnx})\" && {from_onnx}"
            ),
            Foreign::TorchProgram => {
                format!("python -c \"import torch; torch.onnx.export(torch.export.load({file}), f={onnx})\" && {from_onnx}")
            }
            Foreign::SafeTensors => {
                let preset = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
                let preset = in_python(&preset.display().to_string());
                format!("python -c \"import keras_hub; keras_hub.models.Backbone.from_preset({preset}).export({out})\"")
            }
            Foreign::ZippedModel => format!("unzip {shell_file} -d {shell_out}"),
            Foreign::Gzip => format!("mkdir -p {shell_out} && tar -xzf {shell_file} -C {shell_out}"),
            Foreign::Array | Foreign::Arrays => return (None, "arrays are fed, with --feed NAME=FILE.npy".to_string()),
            Foreign::Zip => return (None, "unpack it, and give the SavedModel folder or the GraphDef in it".to_string()),
        };
        (Some(folder), line)
    }
}

/// Whether a message of ONNX begins here: a number in field 1, as no GraphDef has it, and what no SavedModel has behind it.
fn is_onnx(start: &[u8]) -> bool {
    let mut fields = Reader::of_file(start);
    let first = fields.next().and_then(|field| field.ok());
    if !first.is_some_and(|field| field.number == 1 && matches!(field.payload, Payload::Varint(1..100))) {
        return false;
    }
    // The graph (field 7) may reach beyond what there is to look at.
    match fields.next() {
        Some(Ok(field)) => {
            matches!((field.number, field.payload), (2..=4 | 6..=8, Payload::Bytes(_)) | (5, Payload::Varint(_)))
                && {
                    // A SavedModel has graphs alone in field 2, and they begin with their tags.
                    field.number != 2
                        || matches!(field.payload, Payload::Bytes(text) if !text.is_empty() && text.iter().all(|byte| (b' '..=b'~').contains(byte)))
                }
        }
        _ => false,
    }
}

/// The bytes that decide, of a whole file.
pub(crate) fn check(bytes: &[u8]) -> Result<()> {
    let start = &bytes[..bytes.len().min(LOOKED_AT)];
    let end = &bytes[bytes.len().saturating_sub(LOOKED_AT)..];
    Foreign::of_bytes(start, end).map_or(Ok(()), |kind| Err(kind.error(Path::new("this file"))))
}

fn contains(bytes: &[u8], text: &[u8]) -> bool {
    bytes.windows(text.len()).any(|window| window == text)
}

/// A string of Python, in a command that the shell has in double quotes.
fn in_python(text: &str) -> String {
    let mut quoted = String::from("'");
    for letter in text.chars() {
        match letter {
            // The shell takes one of the two away.
            '\\' => quoted.push_str("\\\\\\\\"),
            '\'' => quoted.push_str("\\\\'"),
            '"' | '$' | '`' => quoted.extend(['\\', letter]),
            letter => quoted.push(letter),
        }
    }
    quoted.push('\'');
    quoted
}

/// A word of the shell.
fn in_shell(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_contents_tell_the_kinds() {
        for (name, kind) in
            [("a/net.keras", Foreign::Keras), ("n.weights.h5", Foreign::Weights), ("N.H5", Foreign::Hdf5), ("x.pt2", Foreign::TorchProgram)]
        {
            assert_eq!(Foreign::of_name(Path::new(name)), Some(kind), "{name}");
        }
        assert_eq!(Foreign::of_name(Path::new("net.pb")), None);
        for (bytes, kind) in [
            (&b"PK\x03\x04....archive/data.pkl"[..], Some(Foreign::Torch)),
            (b"PK\x03\x04....model.weights.h5", Some(Foreign::Keras)),
            (b"PK\x03\x04....m/saved_model.pb", Some(Foreign::ZippedModel)),
            (b"PK\x03\x04....arr_0.npy", Some(Foreign::Arrays)),
            (b"PK\x03\x04", Some(Foreign::Zip)),
            (b"\x89HDF\r\n", Some(Foreign::Hdf5)),
            (b"\x1c\0\0\0TFL3", Some(Foreign::TfLite)),
            (b"\x10\0\0\0\0\0\0\0{\"w\":{", Some(Foreign::SafeTensors)),
            (b"\x1f\x8b\x08\0", Some(Foreign::Gzip)),
            (b"\x08\x08\x12\x07pytorch\x1a\x032.1", Some(Foreign::Onnx)),
            // A SavedModel: version 1, a graph with the tag `serve`.
            (b"\x08\x01\x12\x09\x0a\x07\x22\x05serve", None),
            // A GraphDef.
            (b"\x0a\x05\x0a\x01a\x12\0", None),
            (b"", None),
        ] {
            assert_eq!(Foreign::of_bytes(bytes, bytes), kind, "{:?}", String::from_utf8_lossy(bytes));
        }
    }

    #[test]
    fn lines_hold_any_name() {
        let error = Foreign::Keras.error(Path::new("it's $5.keras"));
        let remedy = error.remedy().unwrap();
        assert!(remedy.contains(r"load_model('it\\'s \$5.keras', compile=False).export('it\\'s \$5')"), "{remedy}");
        assert!(Foreign::Onnx.error(Path::new("it's.onnx")).remedy().unwrap().contains(r"onnx2tf -i 'it'\''s.onnx' -o 'it'\''s'"));
        // A file without an extension is not overwritten by the folder.
        assert!(Foreign::Onnx.error(Path::new("net")).remedy().unwrap().contains("-o 'net.saved_model'"));
    }
}
