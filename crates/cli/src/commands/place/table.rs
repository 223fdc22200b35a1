//! Placements as a table. Nodes of a name scope that share device and reason are one line. Where that is still too long, so are
//! scopes whose nodes do not, with how many are where.

use std::collections::BTreeMap;

use plimsoll::text::{column_width, pad_right};
use plimsoll::{Graph, Why};

use super::Entry;

/// No more lines than this, unless all are asked for, or the outermost scopes alone are more.
const LINES: usize = 40;
/// No more devices or reasons than this in one cell.
const NAMES: usize = 3;

/// The reason without the node that it names: lines are grouped by it.
pub fn kind(why: &Why, graph: &Graph) -> String {
    match why {
        Why::Colocated(_) | Why::Shares(_) => "colocated".to_string(),
        Why::Follows(_) | Why::Seated(_) => "follows".to_string(),
        Why::Auto(_) => "auto".to_string(),
        other => other.describe(graph),
    }
}

/// The table: a line for every node with `all`.
pub fn text(nodes: &[Entry], all: bool) -> String {
    let rows = if all || nodes.len() <= LINES { nodes.iter().map(Row::of_node).collect() } else { grouped(nodes) };
    let header = ["node".to_string(), "operation".to_string(), "device".to_string(), "why".to_string()];
    let rows: Vec<[String; 4]> = std::iter::once(header).chain(rows.into_iter().map(|row| row.0)).collect();
    let width = |column: usize| column_width(rows.iter().map(|row| row[column].as_str()));
    let widths: Vec<usize> = (0..3).map(width).collect();
    let line = |row: &[String; 4]| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| pad_right(cell, *width) + "  ").collect::<String>();
        (cells + &row[3]).trim_end().to_string()
    };
    let mut lines: Vec<String> = rows.iter().map(line).collect();
    lines.push(summary(nodes));
    lines.join("\n")
}

/// How many nodes are on each device.
fn summary(nodes: &[Entry]) -> String {
    let devices = counted(nodes.iter().map(|node| short(&node.device)), usize::MAX);
    let count = nodes.len();
    if count == 0 { "no nodes".to_string() } else { format!("{count} {}: {devices}", if count == 1 { "node" } else { "nodes" }) }
}

/// A line of the table, cell by cell.
struct Row([String; 4]);

impl Row {
    fn of_node(node: &Entry) -> Row {
        Row([node.name.clone(), node.op.clone(), short(&node.device).to_string(), node.why.clone()])
    }

    /// A line for several nodes.
    fn of(label: String, nodes: &[usize], all: &[Entry]) -> Row {
        let of = |text: fn(&Entry) -> &str| nodes.iter().map(move |at| text(&all[*at]));
        let same = of(|node| &node.why).all(|why| why == all[nodes[0]].why);
        let is_auto = nodes.iter().all(|at| all[*at].kind == "auto");
        let why = match same {
            true => all[nodes[0]].why.clone(),
            false if is_auto => reasons(nodes, all),
            false => counted(of(|node| &node.kind), NAMES),
        };
        Row([label, format!("{} nodes", nodes.len()), counted(of(|node| short(&node.device)), NAMES), why])
    }
}

/// For each device the reason of most nodes there, which says more than that there are several. Nodes that nothing computes have none.
fn reasons(nodes: &[usize], all: &[Entry]) -> String {
    let mut of_device: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for node in nodes.iter().map(|at| &all[*at]).filter(|node| node.why != node.kind) {
        of_device.entry(short(&node.device)).or_default().push(&node.why);
    }
    if of_device.len() == 1 {
        return of_device.into_values().map(|reasons| counted(reasons.into_iter(), 1)).collect();
    }
    let mut of_device: Vec<(&str, Vec<&str>)> = of_device.into_iter().collect();
    of_device.sort_by_key(|(device, reasons)| (std::cmp::Reverse(reasons.len()), *device));
    let more = of_device.len().saturating_sub(NAMES);
    let shown = of_device.into_iter().take(NAMES).map(|(device, reasons)| format!("{device}: {}", counted(reasons.into_iter(), 1)));
    let shown: Vec<String> = shown.collect();
    if more == 0 { shown.join("; ") } else { format!("{}; {more} more", shown.join("; ")) }
}

/// `CPU:0` of a full name.
fn short(device: &str) -> &str {
    device.rsplit_once("/device:").map_or(device, |(_, short)| short)
}

/// One text as it is, several with how often each is there, the most frequent first.
fn counted<'a>(texts: impl Iterator<Item = &'a str>, names: usize) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    texts.for_each(|text| *counts.entry(text).or_default() += 1);
    if let [(text, _)] = counts.iter().collect::<Vec<_>>()[..] {
        return text.to_string();
    }
    let mut counts: Vec<(&str, usize)> = counts.into_iter().collect();
    counts.sort_by_key(|(text, count)| (std::cmp::Reverse(*count), *text));
    let more = counts.len().saturating_sub(names);
    let shown: Vec<String> = counts.iter().take(names).map(|(text, count)| format!("{text} ({count})")).collect();
    if more == 0 { shown.join(", ") } else { format!("{}, {more} more", shown.join(", ")) }
}

/// The nodes of one line: those below a scope, or those directly in it that share device and reason.
struct Group {
    /// `layer/` of a scope, empty for the outermost.
    scope: String,
    /// Whether these are the nodes directly in the scope.
    direct: bool,
    nodes: Vec<usize>,
}

impl Group {
    /// The groups inside: scopes below it, and the nodes that are in none of them, or in one by themselves, by device and kind of
    /// reason.
    fn inside(&self, nodes: &[Entry]) -> Vec<Group> {
        if self.direct {
            return self.nodes.iter().map(|at| Group { scope: self.scope.clone(), direct: true, nodes: vec![*at] }).collect();
        }
        let scope_of = |at: usize| nodes[at].name[self.scope.len()..].split_once('/').map(|(scope, _)| scope);
        let mut sizes: BTreeMap<&str, usize> = BTreeMap::new();
        self.nodes.iter().filter_map(|at| scope_of(*at)).for_each(|scope| *sizes.entry(scope).or_default() += 1);
        let mut groups: BTreeMap<[&str; 3], Group> = BTreeMap::new();
        for at in &self.nodes {
            let node = &nodes[*at];
            let (key, group) = match scope_of(*at).filter(|scope| sizes[scope] > 1) {
                Some(scope) => ([scope, "", ""], Group { scope: format!("{}{scope}/", self.scope), direct: false, nodes: Vec::new() }),
                None => (["", &node.device, &node.kind], Group { scope: self.scope.clone(), direct: true, nodes: Vec::new() }),
            };
            groups.entry(key).or_insert(group).nodes.push(*at);
        }
        let mut groups: Vec<Group> = groups.into_values().collect();
        groups.sort_by_key(|group| group.nodes[0]);
        groups
    }

    /// Whether a line tells all that there is to tell.
    fn is_told(&self, nodes: &[Entry]) -> bool {
        let first = &nodes[self.nodes[0]];
        self.nodes.len() == 1
            || (!self.direct && self.nodes.iter().all(|at| nodes[*at].device == first.device && nodes[*at].why == first.why))
    }

    fn row(&self, nodes: &[Entry]) -> Row {
        match self.nodes[..] {
            [one] => Row::of_node(&nodes[one]),
            [first, ..] if self.direct => Row::of(format!("{}, ...", nodes[first].name), &self.nodes, nodes),
            _ => Row::of(format!("{}*", self.scope), &self.nodes, nodes),
        }
    }
}

/// The lines of a graph that is too big to show whole. A line whose nodes differ is opened where there is
/// room for all of it: a level of scopes at a time, then the nodes of scopes.
fn grouped(nodes: &[Entry]) -> Vec<Row> {
    let mut groups = Group { scope: String::new(), direct: false, nodes: (0..nodes.len()).collect() }.inside(nodes);
    for direct in [false, true] {
        loop {
            let opens = |group: &Group| group.direct == direct && !group.is_told(nodes);
            let open = |group: Group| if opens(&group) { group.inside(nodes) } else { vec![group] };
            let opened: usize = groups.iter().map(|group| if opens(group) { group.inside(nodes).len() } else { 1 }).sum();
            if opened > LINES || !groups.iter().any(opens) {
                break;
            }
            groups = groups.into_iter().flat_map(open).collect();
        }
    }
    groups.iter().map(|group| group.row(nodes)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, device: u32, why: &str) -> Entry {
        let kind = why.split(' ').next().unwrap_or_default().to_string();
        Entry {
            name: name.into(),
            op: "Op".into(),
            device: format!("/job:localhost/replica:0/task:0/device:CPU:{device}"),
            why: why.into(),
            kind,
        }
    }

    fn lines(nodes: &[Entry], all: bool) -> Vec<String> {
        text(nodes, all).lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
    }

    #[test]
    fn a_small_graph_has_a_line_for_every_node() {
        let nodes = [node("a", 0, "default"), node("b/c", 1, "requested")];
        assert_eq!(
            lines(&nodes, false),
            ["node operation device why", "a Op CPU:0 default", "b/c Op CPU:1 requested", "2 nodes: CPU:0 (1), CPU:1 (1)"]
        );
        assert_eq!(lines(&nodes[..1], false)[2], "1 node: CPU:0");
        assert_eq!(lines(&[], false)[1], "no nodes");
    }

    #[test]
    fn names_of_any_length_make_a_table() {
        for length in [65_535, 65_536, 1 << 20] {
            let nodes = [node(&"x".repeat(length), 0, "default"), node("y", 1, &"why".repeat(length))];
            let told = text(&nodes, true);
            assert!(told.lines().any(|line| line.starts_with("xxx") && line.ends_with("CPU:0   default")), "{length}");
            // No row is padded to the width of the longest.
            assert!(told.len() < 5 * length + 2000, "{length}: {}", told.len());
        }
    }

    #[test]
    fn scopes_of_one_mind_are_one_line_and_others_are_opened() {
        let mut nodes: Vec<Entry> = (0..100).map(|k| node(&format!("tower/{k}/op"), 1, "requested")).collect();
        nodes.extend((0..40).map(|k| node(&format!("mixed/{}/x{k}", k % 2), k % 2, "default")));
        nodes.push(node("alone", 0, "follows x"));
        let wanted = [
            "tower/* 100 nodes CPU:1 requested",
            "mixed/0/* 20 nodes CPU:0 default",
            "mixed/1/* 20 nodes CPU:1 default",
            "alone Op CPU:0 follows x",
        ];
        assert_eq!(lines(&nodes, false)[1..5], wanted);
        assert_eq!(lines(&nodes, true).len(), 1 + 141 + 1);
    }

    #[test]
    fn a_group_placed_by_time_has_a_reason() {
        let mut nodes: Vec<Entry> = (0..60).map(|k| node(&format!("layer/n{k}"), 0, "auto: 1 us here")).collect();
        (0..9).for_each(|k| nodes[k].why = format!("auto: {k} us here, 9 us on CPU:1"));
        nodes.iter_mut().for_each(|node| node.kind = "auto".to_string());
        assert_eq!(lines(&nodes, false)[1], "layer/n0, ... 60 nodes CPU:0 auto: 1 us here (51), 9 more");
    }

    #[test]
    fn a_group_on_several_devices_has_a_reason_for_each() {
        let mut nodes: Vec<Entry> = (0..90).map(|k| node(&format!("net/n{k}/op"), k % 3 / 2, "auto")).collect();
        nodes
            .extend((0..60).map(|k| node(&format!("net/n{k}/x"), k % 3 / 2, ["auto: 1 us here", "auto: 2 us here"][(k % 3 / 2) as usize])));
        nodes.iter_mut().for_each(|node| node.kind = "auto".to_string());
        assert_eq!(lines(&nodes, false)[1], "net/* 150 nodes CPU:0 (100), CPU:1 (50) CPU:0: auto: 1 us here; CPU:1: auto: 2 us here");
    }

    #[test]
    fn what_does_not_fit_is_counted() {
        let mut nodes: Vec<Entry> = (0..200).map(|k| node(&format!("s/n{k}"), 0, &format!("follows m{k}"))).collect();
        nodes.extend((0..3).map(|k| node(&format!("s/o{k}"), k, "requested")));
        let told = lines(&nodes, false);
        assert_eq!(told[1], "s/n0, ... 200 nodes CPU:0 follows");
        assert_eq!((told.len(), &*told[2]), (1 + 4 + 1, "s/o0 Op CPU:0 requested"));
        nodes.extend((0..40).map(|k| node(&format!("s/o{k}/a/b"), k, "requested")));
        assert_eq!(lines(&nodes, false)[1], "s/* 243 nodes CPU:0 (202), CPU:1 (2), CPU:2 (2), 37 more follows (200), requested (43)");
        let scopes: Vec<Entry> =
            (0..500).flat_map(|k| [node(&format!("a{k}/x"), 0, "default"), node(&format!("a{k}/y"), 1, "default")]).collect();
        assert_eq!(lines(&scopes, false)[1], "a0/* 2 nodes CPU:0 (1), CPU:1 (1) default");
    }
}
