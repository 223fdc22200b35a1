//! Unique names, by TensorFlow's rule: `x`, `x_1`, `x_2`; names that differ only in case count as equal.

use std::collections::HashMap;

/// The names in use, in lower case, and how often each was asked for.
#[derive(Debug, Default)]
pub(super) struct Names(HashMap<String, u64>);

impl Names {
    /// A name that was not given yet: `name`, or `name_N` with the capitals of `name`.
    pub(super) fn unique(&mut self, name: &str) -> String {
        let key = name.to_lowercase();
        let asked = self.0.entry(key.clone()).or_insert(0);
        let mut number = *asked;
        *asked += 1;
        if number == 0 {
            return name.to_string();
        }
        let mut composed = key.clone();
        while self.0.contains_key(&composed) {
            composed = format!("{key}_{number}");
            number += 1;
        }
        self.0.insert(composed, 1);
        format!("{name}_{}", number - 1)
    }

    /// Marks a name (of a graph that came from elsewhere) as used.
    pub(super) fn take(&mut self, name: &str) {
        self.0.entry(name.to_lowercase()).or_insert(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_up_and_steps_over_names_in_use() {
        let mut names = Names::default();
        let given: Vec<String> = ["x", "x", "X", "x_1", "y_1", "y", "y", "x"].iter().map(|name| names.unique(name)).collect();
        assert_eq!(given, ["x", "x_1", "X_2", "x_1_1", "y_1", "y", "y_2", "x_3"]);
    }
}
