//! Suggestions for a name that does not exist.

use crate::Error;

/// Longer names are not compared: the cost of a distance grows with the product of the lengths.
const LONGEST: usize = 96;
/// No more names than this are compared.
const MOST: usize = 200_000;

/// The name that is most like `name`: by its letters (about a third of them may differ), or because it ends in `/name`, as
/// nodes within scopes do. None where no name is alike. The first of several equally good ones.
pub fn closest<'a>(name: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let length = name.chars().count();
    if length == 0 || length > LONGEST {
        return None;
    }
    let most = if length == 1 { 0 } else { (length / 3).max(1) };
    let lower = name.to_lowercase();
    let distance = |other: &str| {
        if other.strip_suffix(name).is_some_and(|scope| scope.ends_with('/')) {
            return Some(1);
        }
        if other.len() > 4 * LONGEST || other.chars().count().abs_diff(length) > most {
            return None;
        }
        Some(strsim::osa_distance(&lower, &other.to_lowercase())).filter(|distance| *distance <= most)
    };
    let alike = names.into_iter().take(MOST).filter_map(|other| Some((distance(other)?, other)));
    alike.min_by_key(|(distance, _)| *distance).map(|(_, other)| other)
}

impl Error {
    /// With the question `did you mean 'NAME'?` as the remedy, where one of `names` is like `name`.
    pub fn suggesting<'a>(self, name: &str, names: impl IntoIterator<Item = &'a str>) -> Error {
        match did_you_mean(name, names) {
            Some(question) => self.with_remedy(question),
            None => self,
        }
    }
}

/// `did you mean 'NAME'?` where a name is alike.
pub fn did_you_mean<'a>(name: &str, names: impl IntoIterator<Item = &'a str>) -> Option<String> {
    closest(name, names).map(|other| format!("did you mean '{}'?", other.escape_debug()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_alike() {
        let names = ["loss", "train", "init", "net/Relu", "GPU:0", "serving_default", "width"];
        for (name, expected) in [
            ("losss", Some("loss")),
            ("trian", Some("train")),
            ("Init", Some("init")),
            ("Relu", Some("net/Relu")),
            ("gpu:0", Some("GPU:0")),
            ("serving_defualt", Some("serving_default")),
            ("widht", Some("width")),
            ("x", None),
            ("banana", None),
            ("", None),
        ] {
            assert_eq!(closest(name, names), expected, "{name}");
        }
        assert_eq!(closest("x", ["y", "X"]), Some("X"), "a single letter is alike only in another case");
        assert_eq!(closest("x", ["y"]), None);
        assert_eq!(closest(&"a".repeat(100), ["a"]), None);
        assert_eq!(did_you_mean("trian", names).as_deref(), Some("did you mean 'train'?"));
    }
}
