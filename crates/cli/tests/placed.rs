//! Nodes are where TensorFlow puts them: `placements/*.jsonl`, recorded with TensorFlow by scripts/record_placements.py on several
//! CPU devices. `PLIMSOLL_PLACEMENTS` may name another folder of such files.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use plimsoll::formats::read_graph_def;
use plimsoll::{Devices, Error, Node, Options, Session};
use serde::Deserialize;

/// A graph, and where TensorFlow puts its nodes.
#[derive(Deserialize)]
struct Case {
    name: String,
    cpus: i32,
    soft: bool,
    pruned: bool,
    /// `node 3` in the order of TensorFlow's log.
    #[serde(default)]
    log: Vec<String>,
    /// The same for nodes of bodies, by the names that they have here.
    #[serde(default)]
    bodies: Vec<String>,
    #[serde(default)]
    runs: Vec<Run>,
    error: Option<Refusal>,
    /// A GraphDef as text.
    graph: String,
}

/// One run, after which TensorFlow showed its partitions.
#[derive(Deserialize)]
struct Run {
    fetches: Vec<String>,
    targets: Vec<String>,
    /// `tensor:0 1>2` for every tensor that was sent, `node:^ 1>2` for control.
    transfers: Vec<String>,
    /// With place_pruned_graph.
    #[serde(default)]
    log: Vec<String>,
    /// Operations that ran before, one by one.
    #[serde(default)]
    before: Vec<String>,
    /// Nodes of control flow that did not run.
    pruned: Vec<String>,
    /// Nodes that run elsewhere than the log says.
    moved: BTreeMap<String, usize>,
}

#[derive(Deserialize)]
struct Refusal {
    code: String,
    message: String,
}

fn here() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/placements")
}

fn folder() -> PathBuf {
    std::env::var_os("PLIMSOLL_PLACEMENTS").map_or_else(here, PathBuf::from)
}

fn cases() -> Vec<Case> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let read = |path: PathBuf| -> Vec<Case> {
        let text = std::fs::read_to_string(&path).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{}: {error}", path.display()))).collect()
    };
    files.into_iter().flat_map(read).collect()
}

impl Case {
    fn devices(&self) -> Devices {
        let mut options = Options::new();
        options.soft_placement = self.soft;
        options.place_pruned_graph = self.pruned;
        options.device_count.insert("CPU".to_string(), self.cpus);
        Devices::open(&options).unwrap()
    }

    fn session(&self) -> Result<Session, Error> {
        let devices = self.devices();
        devices.session(devices.resolve(read_graph_def(self.graph.as_bytes())?)?)
    }

    /// Node and device of each line of the log.
    fn log(&self) -> Vec<(&str, usize)> {
        parsed(&self.log)
    }
}

fn parsed(log: &[String]) -> Vec<(&str, usize)> {
    log.iter().map(|line| line.rsplit_once(' ').unwrap()).map(|(name, at)| (name, at.parse().unwrap())).collect()
}

/// The report on every case that is not as it should be.
fn held(what: &str, check: impl Fn(&Case) -> Result<(), String>) {
    let cases = cases();
    assert!(!cases.is_empty());
    let wrong: Vec<String> = cases.iter().filter_map(|case| check(case).err().map(|why| format!("{}: {why}", case.name))).collect();
    assert!(wrong.is_empty(), "{what}: {} of {} cases\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}

#[test]
fn the_log_is_tensorflows() {
    held("another log", |case| {
        if case.error.is_some() || case.pruned {
            return Ok(());
        }
        let session = case.session().map_err(|error| error.to_string())?;
        let wanted: BTreeMap<&str, &str> = case.log.iter().map(|line| line.rsplit_once(' ').unwrap()).collect();
        let line = |(name, at): (&str, &str)| {
            let node = session.graph().find(name).map(|id| session.graph().node(id).op.as_str());
            format!("{name}: ({}): /job:localhost/replica:0/task:0/device:CPU:{at}", node.unwrap_or("missing"))
        };
        let name = |line: &String| line.split(": (").next().unwrap_or_default().to_string();
        let mut log: Vec<String> = session.placement_log().filter(|line| wanted.contains_key(&*name(line))).collect();
        let mut lines: Vec<String> = case.log.iter().map(|text| line(text.rsplit_once(' ').unwrap())).collect();
        if !read_graph_def(case.graph.as_bytes()).unwrap().library.functions.is_empty() {
            // Calls and branches are lowered under other names than TensorFlow's, and the order depends on those.
            log.sort();
            lines.sort();
        }
        let differs = lines.iter().zip(&log).filter(|(wanted, said)| wanted != said);
        let differs: Vec<String> = differs.map(|(wanted, said)| format!("{said} instead of {wanted}")).take(4).collect();
        if differs.is_empty() && log.len() == lines.len() { Ok(()) } else { Err(format!("{} lines: {}", log.len(), differs.join("; "))) }
    });
}

#[test]
fn nodes_run_where_tensorflows_partitions_have_them() {
    held("nodes run elsewhere", |case| {
        if case.error.is_some() || case.pruned {
            return Ok(());
        }
        let session = case.session().map_err(|error| error.to_string())?;
        let wanted: BTreeMap<&str, usize> = case.log().into_iter().collect();
        let placed: Vec<(&Node, String)> = session.placements().collect();
        let differs = case.runs.iter().flat_map(|run| placed.iter().map(move |(node, device)| (run, node, device))).filter_map(
            |(run, node, device)| {
                // Of control flow that does not run, TensorFlow does not say where it would have gone.
                let at = run.moved.get(&node.name).or_else(|| wanted.get(&*node.name)).filter(|_| !run.pruned.contains(&node.name))?;
                (*device != format!("/job:localhost/replica:0/task:0/device:CPU:{at}"))
                    .then(|| format!("{} is on {device}, not CPU:{at}", node.name))
            },
        );
        let differs: Vec<String> = differs.collect();
        if differs.is_empty() { Ok(()) } else { Err(differs.join("; ")) }
    });
}

#[test]
fn bodies_are_where_tensorflow_places_them() {
    let seen = std::cell::Cell::new(0);
    held("nodes of bodies are elsewhere", |case| {
        let session = match case.bodies.is_empty() {
            true => return Ok(()),
            false => case.session().map_err(|error| error.to_string())?,
        };
        let placed: BTreeMap<&str, String> = session.placements().map(|(node, device)| (&*node.name, device)).collect();
        let differs = parsed(&case.bodies).into_iter().filter_map(|(name, at)| {
            seen.set(seen.get() + 1);
            let device = placed.get(name).map_or("nowhere", String::as_str);
            (device != format!("/job:localhost/replica:0/task:0/device:CPU:{at}")).then(|| format!("{name} is on {device}, not CPU:{at}"))
        });
        let differs: Vec<String> = differs.collect();
        if differs.is_empty() { Ok(()) } else { Err(differs.join("; ")) }
    });
    assert!(seen.get() > 20 || folder() != here());
}

/// Case P72 among them: a node that cannot be placed does not matter where it is not needed.
#[test]
fn pruned_graphs_are_placed_run_by_run() {
    held("pruned graphs differ", |case| {
        if !case.pruned {
            return Ok(());
        }
        let session = case.session().map_err(|error| error.to_string())?;
        assert_eq!(session.placements().count(), 0);
        for run in &case.runs {
            for target in &run.before {
                session.plan(&[], &[], &[target]).map_err(|error| error.to_string())?;
            }
            let [fetches, targets] = [&run.fetches, &run.targets].map(|names| names.iter().map(String::as_str).collect::<Vec<_>>());
            let plan = session.plan(&[], &fetches, &targets).map_err(|error| error.to_string())?;
            let placed: BTreeMap<&str, &str> = plan.node_places().map(|(name, _, device)| (name, device)).collect();
            for (name, at) in parsed(&run.log) {
                let device = placed.get(name).ok_or_else(|| format!("{name} is missing"))?;
                if *device != format!("/job:localhost/replica:0/task:0/device:CPU:{at}") {
                    return Err(format!("{name} is on {device}, not CPU:{at}"));
                }
            }
            assert!(!run.log.is_empty());
        }
        Ok(())
    });
}

/// How many tensors go from device to device.
type Copies = BTreeMap<(usize, usize), usize>;

#[test]
fn towers_copy_what_tensorflow_sends_and_others_no_more() {
    let planned = std::cell::Cell::new(0);
    held("other copies", |case| {
        // TensorFlow's partitions do not show tensors sent within bodies.
        if case.error.is_some() || case.pruned || folder() != here() || !case.bodies.is_empty() {
            return Ok(());
        }
        let session = case.session().map_err(|error| error.to_string())?;
        for run in &case.runs {
            let [fetches, targets] = [&run.fetches, &run.targets].map(|names| names.iter().map(String::as_str).collect::<Vec<_>>());
            // Not every operation is built.
            let Ok(plan) = session.plan(&[], &fetches, &targets) else { continue };
            planned.set(planned.get() + 1);
            let (mut ours, mut theirs) = (Copies::new(), Copies::new());
            plan.transfers().iter().for_each(|transfer| *ours.entry((transfer.from, transfer.to)).or_default() += 1);
            for sent in run.transfers.iter().filter(|sent| !sent.contains(":^ ")) {
                let (from, to) = sent.rsplit_once(' ').unwrap().1.split_once('>').unwrap();
                *theirs.entry((from.parse().unwrap(), to.parse().unwrap())).or_default() += 1;
            }
            // A tensor that is known beforehand is not sent, and an identity on a third device is no stop on the way.
            let total = |copies: &Copies| copies.values().sum::<usize>();
            // The devices of a loop get the first value of its condition beside those of its iterations.
            let firsts = usize::from(case.name.starts_with("while"));
            if (case.name.starts_with("towers") && ours != theirs) || total(&ours) > total(&theirs) + firsts {
                return Err(format!("{ours:?}, and TensorFlow sends {theirs:?}"));
            }
        }
        Ok(())
    });
    assert!(planned.get() > 30 || folder() != here(), "only {} runs were planned", planned.get());
}

/// The words of a message without the marks around the names of nodes.
fn bare(message: &str) -> String {
    message.replace("{{node ", "").replace("{{colocation_node ", "").replace("}}", "")
}

#[test]
fn what_tensorflow_refuses_is_refused_with_its_words() {
    held("refused otherwise", |case| {
        let Some(wanted) = &case.error else { return Ok(()) };
        let Err(error) = case.session() else { return Err(format!("accepted, not {}: {}", wanted.code, wanted.message)) };
        let said = error.to_string();
        // TensorFlow prints attributes in any order, the whole node where a specification is malformed, and the node once more.
        let end = |words: &str| ["\n\t [[", " with these attrs", " in node: {"].iter().filter_map(|end| words.find(end)).min();
        let words = bare(&wanted.message[..end(&wanted.message).unwrap_or(wanted.message.len())]);
        let same = said.starts_with(&wanted.code) && bare(&said).contains(&words);
        if same { Ok(()) } else { Err(format!("\n  said   {said}\n  wanted {}: {words}", wanted.code)) }
    });
}
