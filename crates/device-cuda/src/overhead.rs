//! What the driver takes of a card's memory for graphs and the code of kernels: a table by the card's name. Cards that were not measured have a guess.

use plimsoll_base::Bytes;

const TABLE: &str = include_str!("../data/overhead.txt");

/// Bytes that the driver takes for graphs on a card. Code takes what it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// For an executable graph.
    pub graph: Bytes,
    /// For each of its nodes.
    pub node: Bytes,
    /// What a logical device keeps for all of them, and for code.
    pub device: Bytes,
    /// Whether they were measured on such a card.
    pub is_measured: bool,
}

impl Taken {
    /// On cards of that name.
    pub fn on(name: &str) -> Taken {
        find(TABLE, name)
    }

    /// The table of a card, as the project keeps it.
    pub fn text(&self, name: &str) -> String {
        format!("card {name}\ngraph {}\nnode {}\ndevice {}\n", self.graph.0, self.node.0, self.device.0)
    }
}

fn find(table: &str, name: &str) -> Taken {
    let own = format!("card {name}");
    let is_measured = name != "*" && table.lines().any(|line| line == own);
    let begin = if is_measured { own.as_str() } else { "card *" };
    let lines = table.lines().skip_while(|line| *line != begin).skip(1).take_while(|line| !line.starts_with("card "));
    let numbers: Vec<(&str, u64)> = lines.filter_map(|line| line.split_once(' ').and_then(|(of, n)| Some((of, n.parse().ok()?)))).collect();
    let number = |of: &str| Bytes(numbers.iter().find(|(name, _)| *name == of).map_or(0, |(_, number)| *number));
    Taken { graph: number("graph"), node: number("node"), device: number("device"), is_measured }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_has_its_own_table_or_the_guess() {
        let guess = Taken::on("a card that was not measured");
        assert_eq!((guess, guess.is_measured), (find(TABLE, "*"), false));
        assert!(guess.graph.0 > 0 && guess.node.0 > 0 && guess.device.0 >= guess.graph.0 + 100 * guess.node.0);
        let measured = Taken { graph: Bytes(7), node: Bytes(8), device: Bytes(9), is_measured: true };
        let table = format!("{TABLE}{}{}", measured.text("Card 10"), Taken { graph: Bytes(1), ..measured }.text("Card 1"));
        assert_eq!((find(&table, "Card 10"), find(&table, "Card 1").graph), (measured, Bytes(1)));
        assert_eq!((find(&table, "Card"), find(&table, "*")), (guess, guess));
    }

    /// Every table of the file is whole.
    #[test]
    fn tables_have_all_numbers() {
        for name in TABLE.lines().filter_map(|line| line.strip_prefix("card ")) {
            let Taken { graph, node, device, .. } = Taken::on(name);
            assert!(graph.0 > 0 && node.0 > 0 && device.0 >= graph.0 + 100 * node.0, "{name}");
        }
    }
}
