//! The space of a sweep: names with values, and a command with names in braces.

use std::str::FromStr;

use plimsoll_base::{Error, Result, closest};

/// A name and its values: `lr=0.1,0.01`; `lr=1e-4..1e-1` is a range to draw from, `lr=log:1e-4..1e-1` one of magnitudes.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// The name in braces in the command.
    pub name: String,
    values: Values,
}

#[derive(Clone, Debug, PartialEq)]
enum Values {
    List(Vec<String>),
    Range { low: f64, high: f64, is_log: bool },
}

/// A value for each name, in the order of the axes.
pub type Point = Vec<(String, String)>;

/// More points than this are taken for a mistake.
const MOST: usize = 1_000_000;

impl FromStr for Axis {
    type Err = Error;

    fn from_str(text: &str) -> Result<Axis> {
        let wrong = |why: &str| {
            Error::invalid_argument(format!("--set {text}: {why}")).with_remedy("write NAME=VALUE,VALUE, or NAME=LOW..HIGH with --random")
        };
        let (name, values) = text.split_once('=').ok_or_else(|| wrong("it has no ="))?;
        let name = name.trim();
        if !is_name(name) {
            return Err(wrong("a name has letters, digits, '_', '-' and '.'"));
        }
        let (range, is_log) = values.strip_prefix("log:").map_or((values, false), |range| (range, true));
        let number = |text: &str| text.trim().parse::<f64>().ok().filter(|number| number.is_finite());
        let values = match range.split_once("..").and_then(|(low, high)| Some((number(low)?, number(high)?))) {
            Some((low, high)) if low < high && (!is_log || low > 0.0) => Values::Range { low, high, is_log },
            Some(_) => return Err(wrong("in a range LOW is below HIGH, and above 0 with log:")),
            None if is_log => return Err(wrong("log: needs a range")),
            None => Values::List(values.split(',').map(|value| value.trim().to_string()).collect()),
        };
        Ok(Axis { name: name.into(), values })
    }
}

/// All points of the grid, the last name changing fastest; or so many drawn at random, no point of a grid twice. The same seed draws
/// the same points.
///
/// # Errors
/// INVALID_ARGUMENT for a name that is there twice, a range without a number to draw, and for too many.
pub fn points(axes: &[Axis], random: Option<usize>, seed: u64) -> Result<Vec<Point>> {
    if let Some(twice) = (1..axes.len()).find(|&at| axes[..at].iter().any(|axis| axis.name == axes[at].name)) {
        return Err(Error::invalid_argument(format!("--set {}: the name is given twice", axes[twice].name)));
    }
    let size = axes.iter().try_fold(1usize, |size, axis| match &axis.values {
        Values::List(values) => size.checked_mul(values.len()),
        Values::Range { .. } => Some(usize::MAX),
    });
    let is_grid = axes.iter().all(|axis| matches!(axis.values, Values::List(_)));
    let count = match random {
        Some(count) => {
            if is_grid {
                count.min(size.unwrap_or(usize::MAX))
            } else {
                count
            }
        }
        None if !is_grid => {
            return Err(Error::invalid_argument("a range (LOW..HIGH) has no list of points")
                .with_remedy("say how many points to draw, with --random N"));
        }
        None => size.unwrap_or(usize::MAX),
    };
    if count > MOST {
        return Err(Error::invalid_argument(format!("more than {MOST} points")).with_remedy("draw some, with --random N"));
    }
    let at = |mut index: usize| -> Point {
        let mut point = Vec::new();
        for axis in axes.iter().rev() {
            let Values::List(values) = &axis.values else { continue };
            point.push((axis.name.clone(), values[index % values.len()].clone()));
            index /= values.len();
        }
        point.reverse();
        point
    };
    if random.is_none() {
        return Ok((0..count).map(at).collect());
    }
    let mut chance = Chance(seed);
    let mut drawn: Vec<Point> = Vec::new();
    while drawn.len() < count {
        let point: Point = axes.iter().map(|axis| (axis.name.clone(), axis.draw(&mut chance))).collect();
        if !is_grid || !drawn.contains(&point) {
            drawn.push(point);
        }
    }
    Ok(drawn)
}

impl Axis {
    fn draw(&self, chance: &mut Chance) -> String {
        match &self.values {
            Values::List(values) => values[(chance.next() % values.len() as u64) as usize].clone(),
            Values::Range { low, high, is_log } => {
                let part = (chance.next() >> 11) as f64 / (1u64 << 53) as f64;
                let value = if *is_log { (low.ln() + part * (high.ln() - low.ln())).exp() } else { low + part * (high - low) };
                // Enough digits to tell values apart, and to read them.
                format!("{value:.6e}").parse::<f64>().map_or_else(|_| value.to_string(), |value| value.to_string())
            }
        }
    }
}

/// SplitMix64.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

/// The command at a point: `{name}` becomes the value; `{{` and `}}` are braces, so that `{{name}}` is the text `{name}`. Braces
/// around a text that cannot be a name (a space, a quote, nothing) are left alone.
///
/// # Errors
/// INVALID_ARGUMENT for a name that the command does not use, and for a name in braces that has no values.
pub fn command(template: &[String], point: &Point) -> Result<Vec<String>> {
    let mut used = vec![false; point.len()];
    let filled = template.iter().map(|word| fill(word, point, &mut used)).collect::<Result<Vec<_>>>()?;
    if let Some(((name, _), _)) = point.iter().zip(used).find(|(_, used)| !used) {
        return Err(Error::invalid_argument(format!("--set {name}: the command does not use {{{name}}}"))
            .with_remedy(format!("write it into the command, as --{name} {{{name}}}")));
    }
    Ok(filled)
}

/// One word of the command at a point; `used` notes which names it has.
fn fill(word: &str, point: &Point, used: &mut [bool]) -> Result<String> {
    let (mut out, mut rest) = (String::new(), word);
    while let Some(at) = rest.find(['{', '}']) {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let named = rest.strip_prefix('{').and_then(|inner| inner.split_once('}')).filter(|(name, _)| is_name(name));
        rest = match named {
            _ if rest.starts_with("{{") || rest.starts_with("}}") => {
                out.push_str(&rest[..1]);
                &rest[2..]
            }
            Some((name, after)) => {
                let index = point.iter().position(|(other, _)| other == name).ok_or_else(|| unknown(name, word, point))?;
                used[index] = true;
                out.push_str(&point[index].1);
                after
            }
            None => {
                out.push_str(&rest[..1]);
                &rest[1..]
            }
        };
    }
    Ok(out + rest)
}

fn unknown(name: &str, word: &str, point: &Point) -> Error {
    let shown = word.escape_debug();
    let escape = format!("write {{{{{name}}}}} where the program is to see {{{name}}}");
    let names = point.iter().map(|(name, _)| name.as_str());
    let remedy = match closest(name, names) {
        Some(other) => format!("did you mean {{{other}}}? Or {escape}"),
        None => format!("give it values, with --set {name}=VALUES, or {escape}"),
    };
    Error::invalid_argument(format!("no --set gives {{{name}}} in '{shown}' a value")).with_remedy(remedy)
}

/// Whether a text can be the name of an axis.
fn is_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axes(texts: &[&str]) -> Vec<Axis> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    fn shown(points: &[Point]) -> Vec<String> {
        points.iter().map(|point| point.iter().map(|(_, value)| value.as_str()).collect::<Vec<_>>().join(" ")).collect()
    }

    #[test]
    fn a_grid_in_order() {
        let points = points(&axes(&["lr=0.1, 0.01", "width=64,128"]), None, 0).unwrap();
        assert_eq!(shown(&points), ["0.1 64", "0.1 128", "0.01 64", "0.01 128"]);
        assert_eq!(super::points(&[], None, 0).unwrap(), [Point::new()], "nothing to vary is one run");
    }

    #[test]
    fn points_drawn_at_random() {
        let grid = axes(&["a=1,2,3", "b=x,y"]);
        let drawn = |count, seed| shown(&points(&grid, Some(count), seed).unwrap());
        assert_eq!(drawn(4, 7), drawn(4, 7));
        assert_ne!(drawn(5, 7), drawn(5, 8));
        let mut all = drawn(100, 1);
        all.sort();
        assert_eq!(all, ["1 x", "1 y", "2 x", "2 y", "3 x", "3 y"], "no point twice");
        for point in points(&axes(&["lr=log:1e-4..1e-1", "momentum=0.5..0.9"]), Some(50), 3).unwrap() {
            let number = |at: usize| point[at].1.parse::<f64>().unwrap();
            assert!((1e-4..1e-1).contains(&number(0)) && (0.5..0.9).contains(&number(1)), "{point:?}");
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for text in ["lr", "=1", "l r=1", "lr=2..1", "lr=log:0..1", "lr=log:a"] {
            assert!(text.parse::<Axis>().is_err(), "{text}");
        }
        assert!(points(&axes(&["a=1", "a=2"]), None, 0).is_err() && points(&axes(&["a=1..2"]), None, 0).is_err());
        let many = vec!["1"; 2000].join(",");
        assert!(points(&axes(&[&format!("a={many}"), &format!("b={many}")]), None, 0).is_err());
    }

    #[test]
    fn names_in_braces_become_values() {
        let words = |words: &[&str]| words.iter().map(|word| word.to_string()).collect::<Vec<_>>();
        let point = vec![("lr".to_string(), "0.1".to_string()), ("n".to_string(), "{lr}".to_string())];
        let filled = command(&words(&["t", "--lr={lr}", "{n}x{lr}", "{{lr}} {{other}} {", "é}}", "{{{n}}}", "{}{a b} {\"a\": 1}"]), &point);
        assert_eq!(filled.unwrap(), ["t", "--lr=0.1", "{lr}x0.1", "{lr} {other} {", "é}", "{{lr}}", "{}{a b} {\"a\": 1}"]);
        assert!(command(&words(&["t", "{lr}"]), &point).unwrap_err().message().contains("the command does not use {n}"));
    }

    #[test]
    fn a_name_in_braces_that_has_no_values_is_refused() {
        let point = vec![("width".to_string(), "1".to_string())];
        for (word, remedy) in [
            ("--w={widht}", "did you mean {width}? Or write {{widht}} where the program is to see {widht}"),
            ("${HOME}", "give it values, with --set HOME=VALUES, or write {{HOME}} where the program is to see {HOME}"),
        ] {
            let error = command(&["t".to_string(), "{width}".to_string(), word.to_string()], &point).unwrap_err();
            assert!(error.message().ends_with(&format!("in '{word}' a value")), "{error}");
            assert_eq!(error.remedy(), Some(remedy));
        }
    }
}
