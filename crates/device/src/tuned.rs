//! Times of ways to compute requests, measured on cards: a table that libraries of cards choose by, and so an input of planning.
//!
//! A table has a part for each card, version of cuDNN and bounds that were measured. A library reads the part that is its own alone. The file is
//! text, which people can read and compare:
//!
//! ```text
//! # Times of products and convolutions on cards, in seconds. Written by `plimsoll tune`, for `--tuned FILE`.
//! card NVIDIA H200
//! cudnn 9.26.0
//! tensor-float-32 off
//! workspace 33554432
//! request 0f3c6a1be2d54c77 forward float 64x56x56x64 by 3x3x64x64
//! 2.113e-4 cudnn-9.26.0/70/2=12,18=0/1234
//! 5.500e-4 cuda
//! ```
//!
//! Without cuDNN the second line is `cudnn none`, and the two behind it are not there.

use std::collections::BTreeMap;
use std::fmt::{self, Write};

use plimsoll_base::{Bytes, Error, Result};
use plimsoll_request::KernelRequest;
use sha2::{Digest, Sha256};

/// The first line of a file.
const HEAD: &str = "# Times of products and convolutions on cards, in seconds. Written by `plimsoll tune`, for `--tuned FILE`.";

/// The longest time that a way may have: none was measured above.
const MOST_SECONDS: f64 = 1e4;

/// What a part of a table is for. Times of another card, version or bound say nothing here.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TunedFor {
    /// The driver's name of the card.
    pub card: String,
    /// cuDNN there; none where it did not compute.
    pub cudnn: Option<TunedCudnn>,
}

/// The cuDNN of a part.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TunedCudnn {
    /// Its version: `9.26.0`.
    pub version: String,
    /// Whether floats could be rounded to TF32.
    pub tensor_float_32: bool,
    /// The most workspace of an engine.
    pub workspace: Bytes,
}

/// The ways to compute a request, and their times.
#[derive(Clone, Debug, PartialEq)]
pub struct TunedRequest {
    /// The request for readers, in one line.
    pub what: String,
    /// Names of variants with their seconds, the fastest first.
    pub times: Vec<(String, f64)>,
}

/// The part of a table for a card: requests by their keys ([`Tuned::key`]).
pub type TunedPart = BTreeMap<String, TunedRequest>;

/// A table of times.
#[derive(Clone, Debug, PartialEq)]
pub struct Tuned {
    parts: BTreeMap<TunedFor, TunedPart>,
    fingerprint: String,
}

impl fmt::Display for TunedFor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TunedFor { card, cudnn } = self;
        match cudnn {
            None => write!(f, "{card} without cuDNN"),
            Some(TunedCudnn { version, tensor_float_32, workspace }) => {
                let floats = if *tensor_float_32 { "TF32" } else { "whole floats" };
                write!(f, "{card} with cuDNN {version}, {floats} and {workspace} of workspace")
            }
        }
    }
}

/// Seconds as files have them: four digits.
fn rounded(seconds: f64) -> f64 {
    format!("{seconds:.3e}").parse().unwrap_or(seconds)
}

/// A line without what would end it.
fn line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

impl TunedRequest {
    /// Ways and their seconds, in any order.
    pub fn new(what: &str, times: impl IntoIterator<Item = (String, f64)>) -> TunedRequest {
        let mut times: Vec<(String, f64)> = times.into_iter().map(|(name, seconds)| (name, rounded(seconds))).collect();
        times.sort_by(|one, other| one.1.total_cmp(&other.1).then_with(|| one.0.cmp(&other.0)));
        TunedRequest { what: line(what), times }
    }
}

impl Tuned {
    /// A table of these parts. Those without requests are left out.
    pub fn of(parts: impl IntoIterator<Item = (TunedFor, TunedPart)>) -> Tuned {
        let parts = parts.into_iter().filter(|(_, part)| !part.is_empty()).collect();
        let mut tuned = Tuned { parts, fingerprint: String::new() };
        let digest = Sha256::digest(tuned.to_text());
        tuned.fingerprint = digest[..8].iter().map(|byte| format!("{byte:02x}")).collect();
        tuned
    }

    /// Its parts.
    pub fn parts(&self) -> &BTreeMap<TunedFor, TunedPart> {
        &self.parts
    }

    /// The part for a card.
    pub fn part(&self, of: &TunedFor) -> Option<&TunedPart> {
        self.parts.get(of)
    }

    /// This table, with what the other one has besides or anew.
    #[must_use]
    pub fn with(&self, other: &Tuned) -> Tuned {
        let mut parts = self.parts.clone();
        for (of, part) in &other.parts {
            parts.entry(of.clone()).or_default().extend(part.clone());
        }
        Tuned::of(parts)
    }

    /// A name for this table, which plans keep: 16 digits of the SHA-256 of the file.
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    /// What a table knows a request by: 16 digits of a SHA-256. Requests whose variant has to be the same, whatever is fused into them, have one
    /// key ([`Tuned::subject`]).
    ///
    /// # Errors
    /// INTERNAL where a request cannot be written.
    pub fn key(request: &KernelRequest) -> Result<String> {
        let subject = Tuned::subject(request);
        let json = serde_json::to_vec(&subject).map_err(|error| Error::internal(format!("a request cannot be written: {error}")))?;
        Ok(Sha256::digest(json)[..8].iter().map(|byte| format!("{byte:02x}")).collect())
    }

    /// The request that is timed for another one: of floats the bare convolution, which alone decides the bits.
    pub fn subject(request: &KernelRequest) -> KernelRequest {
        request.bare_convolution().unwrap_or_else(|| request.clone())
    }

    /// The table of a file.
    ///
    /// # Errors
    /// INVALID_ARGUMENT naming the line that is none of a table.
    pub fn parse(text: &str) -> Result<Tuned> {
        let mut parts: BTreeMap<TunedFor, TunedPart> = BTreeMap::new();
        let mut lines = text.lines().zip(1..).filter(|(line, _)| !line.is_empty() && !line.starts_with('#')).peekable();
        let wrong = |number: usize, what: &str| {
            Error::invalid_argument(format!("not a table of times: line {number}: {what}"))
                .with_remedy("measure it again with `plimsoll tune`")
        };
        while let Some((line, number)) = lines.next() {
            let card = line.strip_prefix("card ").ok_or_else(|| wrong(number, "no `card`"))?.to_string();
            let mut next = |word: &str| {
                let (line, number) = lines.next().ok_or_else(|| wrong(number, &format!("no `{word}` behind it")))?;
                let rest = line.strip_prefix(word).and_then(|rest| rest.strip_prefix(' '));
                rest.map(|rest| (rest, number)).ok_or_else(|| wrong(number, &format!("no `{word}`")))
            };
            let cudnn = match next("cudnn")?.0 {
                "none" => None,
                version => {
                    let (floats, number) = next("tensor-float-32")?;
                    let tensor_float_32 = match floats {
                        "on" => true,
                        "off" => false,
                        _ => return Err(wrong(number, "neither on nor off")),
                    };
                    let (bytes, number) = next("workspace")?;
                    let workspace = Bytes(bytes.parse().map_err(|_| wrong(number, "no number of bytes"))?);
                    Some(TunedCudnn { version: version.to_string(), tensor_float_32, workspace })
                }
            };
            let part = parts.entry(TunedFor { card, cudnn }).or_default();
            while let Some((line, number)) = lines.next_if(|(line, _)| line.starts_with("request ")) {
                let (key, what) = line["request ".len()..].split_once(' ').unwrap_or((&line["request ".len()..], ""));
                if key.len() != 16 || !key.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte)) {
                    return Err(wrong(number, "no key of a request"));
                }
                let mut times = Vec::new();
                while let Some((line, number)) = lines.next_if(|(line, _)| line.starts_with(|first: char| first.is_ascii_digit())) {
                    let time = line.split_once(' ').and_then(|(seconds, name)| Some((name.to_string(), seconds.parse::<f64>().ok()?)));
                    let is_time = |(name, seconds): &(String, f64)| *seconds > 0.0 && *seconds < MOST_SECONDS && !name.contains(' ');
                    times.push(time.filter(is_time).ok_or_else(|| wrong(number, "no time of a way"))?);
                }
                if times.is_empty() {
                    return Err(wrong(number, "a request without times"));
                }
                part.insert(key.to_string(), TunedRequest::new(what, times));
            }
        }
        Ok(Tuned::of(parts))
    }

    /// The file.
    pub fn to_text(&self) -> String {
        let mut text = format!("{HEAD}\n");
        for (TunedFor { card, cudnn }, part) in &self.parts {
            let card = line(card);
            // Writing to a text does not fail.
            let _ = match cudnn {
                None => writeln!(text, "card {card}\ncudnn none"),
                Some(TunedCudnn { version, tensor_float_32, workspace }) => {
                    let floats = if *tensor_float_32 { "on" } else { "off" };
                    writeln!(text, "card {card}\ncudnn {}\ntensor-float-32 {floats}\nworkspace {}", line(version), workspace.0)
                }
            };
            for (key, TunedRequest { what, times }) in part {
                let _ = writeln!(text, "{}", format!("request {key} {what}").trim_end());
                for (name, seconds) in times {
                    let _ = writeln!(text, "{seconds:.3e} {name}");
                }
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_base::{Code, DataType};
    use plimsoll_request::anchor::{Anchor, Epilogue};
    use plimsoll_request::conv::ConvSpec;
    use plimsoll_request::expr::ExprBuilder;
    use plimsoll_request::window::{Axes, Layout, WindowAxis};
    use proptest::prelude::*;

    use super::*;

    fn of(card: &str, version: Option<&str>) -> TunedFor {
        let cudnn = version.map(|version| TunedCudnn { version: version.to_string(), tensor_float_32: false, workspace: Bytes(32 << 20) });
        TunedFor { card: card.to_string(), cudnn }
    }

    fn part(key: &str, what: &str, times: &[(&str, f64)]) -> TunedPart {
        let times = times.iter().map(|(name, seconds)| (name.to_string(), *seconds));
        TunedPart::from([(key.to_string(), TunedRequest::new(what, times))])
    }

    const KEY: &str = "0123456789abcdef";

    #[test]
    fn a_table_is_read_as_it_was_written() {
        let first = part(KEY, "a product", &[("cuda", 5.4321e-4), ("cudnn-9.26.0/1/-/0", 2e-5)]);
        let tuned = Tuned::of([(of("Card A", Some("9.26.0")), first), (of("Card B", None), part(KEY, "", &[("cuda", 1.0)]))]);
        let text = tuned.to_text();
        let read = Tuned::parse(&text).unwrap();
        assert_eq!((&read, read.fingerprint(), read.to_text()), (&tuned, tuned.fingerprint(), text.clone()));
        let times = &tuned.part(&of("Card A", Some("9.26.0"))).unwrap()[KEY].times;
        assert_eq!(times, &[("cudnn-9.26.0/1/-/0".to_string(), 2e-5), ("cuda".to_string(), 5.432e-4)], "{text}");
        assert!(tuned.part(&of("Card A", Some("9.27.0"))).is_none() && tuned.part(&of("Card A", None)).is_none());
        // Another order of lines is the same table, and another time is another one.
        let turned = "card Card B\ncudnn none\nrequest 0123456789abcdef\n1 cuda\n";
        assert_eq!(Tuned::parse(turned).unwrap().part(&of("Card B", None)), tuned.part(&of("Card B", None)));
        assert_ne!(Tuned::parse(&text.replace("2.000e-5", "3.000e-5")).unwrap().fingerprint(), tuned.fingerprint());
    }

    #[test]
    fn a_file_that_is_no_table_names_its_line() {
        let whole = "card A\ncudnn 9.26.0\ntensor-float-32 on\nworkspace 5\nrequest 0123456789abcdef x\n1e-3 cuda\n";
        assert!(Tuned::parse(whole).is_ok() && Tuned::parse("").unwrap().parts().is_empty());
        let wrong = [
            ("card A", "kard A", 1),
            ("cudnn 9.26.0", "cudnn", 2),
            ("32 on", "32 maybe", 3),
            ("workspace 5", "workspace -5", 4),
            ("0123456789abcdef", "0123456789ABCDEF", 5),
            ("1e-3 cuda", "", 5),
            ("1e-3 cuda", "0 cuda", 6),
            ("1e-3 cuda", "1e9 cuda", 6),
            ("1e-3 cuda", "1e-3", 6),
            ("1e-3 cuda", "1e-3 cu da", 6),
            ("1e-3 cuda", "-1 cuda", 5),
        ];
        for (from, to, number) in wrong {
            let error = Tuned::parse(&whole.replace(from, to)).unwrap_err();
            assert_eq!(error.code(), Code::InvalidArgument);
            assert!(error.message().contains(&format!("line {number}:")), "{to}: {error}");
        }
    }

    #[test]
    fn newer_times_replace_older_ones() {
        let (first, second) = (of("A", None), of("B", None));
        let old = Tuned::of([(first.clone(), part(KEY, "one", &[("cuda", 1.0)])), (second.clone(), part(KEY, "", &[("cuda", 2.0)]))]);
        let mut newer = part(KEY, "one", &[("cuda", 3.0)]);
        newer.extend(part("fedcba9876543210", "", &[("cuda", 4.0)]));
        let both = old.with(&Tuned::of([(first.clone(), newer.clone())]));
        assert_eq!((both.part(&first), both.part(&second)), (Some(&newer), old.part(&second)));
        assert_eq!(both.with(&Tuned::of([])), both);
    }

    #[test]
    fn a_convolution_of_floats_has_one_key_whatever_is_fused() {
        let axes = Axes::new(&[WindowAxis::ONE]).unwrap();
        let spec = |data_type| ConvSpec { data_type, batch: 2, in_c: 3, out_c: 4, axes, layout: Layout::ChannelsLast, groups: 1 };
        let request = |data_type, is_relu: bool| {
            let epilogue = is_relu.then(|| {
                let mut expr = ExprBuilder::new();
                let element = expr.input(data_type).unwrap();
                Epilogue { expr: expr.finish(vec![element]), operands: Vec::new() }
            });
            KernelRequest::Anchor { anchor: Anchor::Conv(spec(data_type)), epilogue, pooling: None }
        };
        let key = |data_type, is_relu| Tuned::key(&request(data_type, is_relu)).unwrap();
        assert_eq!(key(DataType::Float, true), key(DataType::Float, false));
        assert_ne!(key(DataType::Bfloat16, true), key(DataType::Bfloat16, false));
        assert_ne!(key(DataType::Bfloat16, false), key(DataType::Float, false));
    }

    proptest! {
        /// Whatever is in a file, reading it gives an error or a table that is written and read again.
        #[test]
        fn files_are_read_or_refused(text in "(card [A-C]\n|cudnn (none|9.1.0)\n|tensor-float-32 on\n|workspace [0-9]{1,3}\n|request 0123456789abcde[0-9a-f]( x)?\n|[0-9]e-[1-9] [a-z]{1,3}\n|.{0,3}\n){0,12}") {
            if let Ok(tuned) = Tuned::parse(&text) {
                prop_assert_eq!(Tuned::parse(&tuned.to_text()).unwrap(), tuned);
            }
        }
    }
}
