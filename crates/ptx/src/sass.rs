//! Machine code of cards as text, by NVIDIA's disassembler, where it is installed.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

/// `nvdisasm`, or `cuobjdump`.
#[derive(Clone, Debug)]
pub struct Disassembler {
    program: PathBuf,
}

/// An instruction of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instruction {
    /// Bytes from the function's begin.
    pub address: u64,
    /// Its name with what belongs to it, `LDG.E.128`.
    pub name: String,
    /// Where it goes on, for a branch with a fixed target.
    pub target: Option<u64>,
}

/// The instructions of a function, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Code(pub Vec<Instruction>);

impl Code {
    /// The instructions that lie between a branch backwards and its target: those of a loop.
    pub fn in_loops(&self) -> impl Iterator<Item = &Instruction> {
        let back = |from: &Instruction| from.target.filter(|target| *target <= from.address).map(|target| (target, from.address));
        let loops: Vec<(u64, u64)> = self.0.iter().filter_map(back).collect();
        self.0.iter().filter(move |instruction| loops.iter().any(|(first, last)| (*first..=*last).contains(&instruction.address)))
    }
}

impl Disassembler {
    /// The program that PLIMSOLL_NVDISASM names. Without it: that in the folders of PLIMSOLL_CUDA_LIBS, in a Python environment that these
    /// folders belong to or that is active (of its own, or Triton's), in the CUDA toolkit, or on the PATH. None where it is not installed.
    pub fn find() -> Option<Disassembler> {
        if let Some(named) = std::env::var_os("PLIMSOLL_NVDISASM") {
            return Disassembler::at(PathBuf::from(named));
        }
        let paths = |name: &str| std::env::var_os(name).map(|value| std::env::split_paths(&value).collect::<Vec<_>>()).unwrap_or_default();
        let libraries = paths("PLIMSOLL_CUDA_LIBS");
        let mut folders = libraries.clone();
        let of_packages = libraries
            .iter()
            .flat_map(|folder| folder.ancestors())
            .filter(|folder| folder.ends_with("site-packages"))
            .map(Path::to_path_buf);
        let mut packages: Vec<PathBuf> = of_packages.collect();
        for prefix in ["VIRTUAL_ENV", "CONDA_PREFIX"].into_iter().filter_map(std::env::var_os) {
            let found = std::fs::read_dir(Path::new(&prefix).join("lib")).into_iter().flatten().flatten();
            packages.extend(found.map(|entry| entry.path().join("site-packages")));
        }
        for packages in packages {
            folders.extend(["nvidia/cu13/bin", "triton/backends/nvidia/bin"].map(|folder| packages.join(folder)));
        }
        folders.push(PathBuf::from("/usr/local/cuda/bin"));
        folders.extend(paths("PATH"));
        let programs = folders.iter().flat_map(|folder| ["nvdisasm", "cuobjdump"].map(|name| folder.join(name)));
        programs.into_iter().find_map(Disassembler::at)
    }

    fn at(program: PathBuf) -> Option<Disassembler> {
        program.is_file().then_some(Disassembler { program })
    }

    /// The functions of a cubin by name.
    ///
    /// # Errors
    /// What the program says of a cubin that it does not know, and a text that is not understood.
    pub fn functions(&self, cubin: &[u8]) -> Result<BTreeMap<String, Code>, String> {
        let file = std::env::temp_dir().join(format!("plimsoll_{}_{:016x}.cubin", std::process::id(), hash(cubin)));
        std::fs::write(&file, cubin).map_err(|error| format!("{}: {error}", file.display()))?;
        let option = if self.program.file_name().is_some_and(|name| name == "cuobjdump") { "-sass" } else { "-c" };
        let output = Command::new(&self.program).args([OsString::from(option), file.clone().into_os_string()]).output();
        let removed = std::fs::remove_file(&file);
        let output = output.map_err(|error| format!("{}: {error}", self.program.display()))?;
        removed.map_err(|error| format!("{}: {error}", file.display()))?;
        if !output.status.success() {
            return Err(format!("{}: {}", self.program.display(), String::from_utf8_lossy(&output.stderr)));
        }
        parse(&String::from_utf8_lossy(&output.stdout))
    }
}

fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xCBF2_9CE4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3))
}

/// An instruction whose target may be a label.
struct Line<'a> {
    address: u64,
    name: &'a str,
    target: Option<&'a str>,
}

/// The functions of what either program prints: `.text.NAME:` or `Function : NAME`, labels, and lines `/*ADDRESS*/ @P0 NAME OPERANDS ;`.
fn parse(text: &str) -> Result<BTreeMap<String, Code>, String> {
    let mut functions = BTreeMap::new();
    let mut name: Option<&str> = None;
    let (mut lines, mut labels) = (Vec::new(), BTreeMap::new());
    let mut next = 0;
    for line in text.lines().map(str::trim).chain([".text.:"]) {
        let begins = line.strip_prefix(".text.").and_then(|rest| rest.strip_suffix(':'));
        if let Some(begun) = begins.or_else(|| line.strip_prefix("Function : ")) {
            let (lines, labels) = (std::mem::take(&mut lines), std::mem::take(&mut labels));
            if let Some(name) = name.replace(begun) {
                functions.insert(name.to_string(), resolved(&lines, &labels)?);
            }
        } else if let Some(label) = line.strip_suffix(':') {
            labels.insert(label, next);
        } else if let Some(instruction) = instruction(line) {
            // The first address behind it: no two labels of different places are equal by it.
            next = instruction.address + 1;
            lines.push(instruction);
        }
    }
    if functions.values().all(|code: &Code| code.0.is_empty()) {
        return Err(format!("no instructions in {} bytes of text", text.len()));
    }
    Ok(functions)
}

fn instruction(line: &str) -> Option<Line<'_>> {
    let (address, rest) = line.strip_prefix("/*")?.split_once("*/")?;
    let (rest, _) = rest.split_once(';')?;
    let address = u64::from_str_radix(address, 16).ok()?;
    let mut words = rest.split_whitespace().skip_while(|word| word.starts_with('@') || *word == "{");
    let name = words.next()?;
    let target = name.starts_with("BRA").then(|| words.last()).flatten();
    Some(Line { address, name, target: target.map(|target| target.trim_matches(['`', '(', ')'])) })
}

fn resolved(lines: &[Line<'_>], labels: &BTreeMap<&str, u64>) -> Result<Code, String> {
    let place = |target: &str| match target.strip_prefix("0x") {
        Some(number) => u64::from_str_radix(number, 16).map_err(|error| format!("{target}: {error}")),
        None => labels.get(target).copied().ok_or_else(|| format!("a branch to {target}, which is not in the text")),
    };
    let one = |line: &Line<'_>| {
        Ok(Instruction { address: line.address, name: line.name.to_string(), target: line.target.map(place).transpose()? })
    };
    lines.iter().map(one).collect::<Result<_, String>>().map(Code)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LABELS: &str = "
.text.k_1:
        /*0000*/                   MOV R1, c[0x0][0x28] ;
.L_x_2:
        /*0010*/                   LDG.E.128 R8, [R4.64] ;
        /*0020*/               @P1 BRA `(.L_x_2) ;
        /*0030*/                   STG.E [R4.64], R8 ;
.L_x_0:
        /*0040*/                   BRA `(.L_x_0);
.text.k_2:
        /*0000*/                   EXIT ;
";
    const ADDRESSES: &str = "
		Function : k_1
        /*0000*/                   MOV R1, c[0x0][0x28] ;   /* 0x00000a00ff017624 */
                                                            /* 0x000fe400078e00ff */
        /*0010*/                   LDG.E.128 R8, [R4.64] ;  /* 0x000004f000008947 */
        /*0020*/               @P1 BRA 0x10 ;               /* 0x000004f000008947 */
        /*0030*/                   STG.E [R4.64], R8 ;      /* 0x000004f000008947 */
        /*0040*/                   BRA 0x40;                /* 0x000004f000008947 */
		Function : k_2
        /*0000*/                   EXIT ;                   /* 0x000004f000008947 */
";

    #[test]
    fn instructions_of_loops_are_found_in_what_either_program_prints() {
        for text in [LABELS, ADDRESSES] {
            let functions = parse(text).unwrap();
            assert_eq!(functions.keys().collect::<Vec<_>>(), ["k_1", "k_2"]);
            let names: Vec<&str> = functions["k_1"].in_loops().map(|instruction| instruction.name.as_str()).collect();
            assert_eq!(names, ["LDG.E.128", "BRA", "BRA"], "{text}");
            assert_eq!(functions["k_1"].0.len(), 5);
        }
        assert!(parse("nothing").is_err() && parse(".text.k:\n/*0000*/ BRA `(.L_x_9) ;").is_err());
    }
}
