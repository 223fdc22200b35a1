//! The works of a body that can be on rows of lists.

use std::collections::{BTreeMap, HashMap, HashSet};

use plimsoll_base::DataType;
use plimsoll_device::{KernelCall, Step};
use plimsoll_graph::IdVec;
use plimsoll_request::KernelRequest;
use plimsoll_request::gather::Gather;
use plimsoll_request::on_rows::RowOf;

use crate::Request;
use crate::access::replaced_row;
use crate::lir::{Arg, Edges, Home, Lir, ValueId, View, Work, WorkId, WorkKind};

/// Works on rows have at most so many arguments, as others.
const MAX_ARGS: usize = 32;

/// A row of a list, and its index.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub list: View,
    pub index: View,
    /// Its argument is the number of the work's input or output.
    pub of: RowOf,
}

/// What becomes of a work.
#[derive(Clone, Debug, Default)]
pub(super) struct Change {
    /// Inputs that are rows, and lie in their lists.
    pub inputs: Vec<Row>,
    /// Outputs that are rows, and are made in their lists.
    pub outputs: Vec<Made>,
    /// Works that it waits for in the place of others, which are gone.
    pub after: Vec<WorkId>,
}

/// An output that is made in a list. The row's argument is the number of the work's output.
#[derive(Clone, Debug)]
pub(super) struct Made {
    pub row: Row,
    /// The list afterwards.
    pub list: ValueId,
    /// Whether others read the output where it was, too.
    pub is_kept: bool,
    /// The work that is gone.
    pub by: WorkId,
}

/// What is found in the region at hand.
pub(super) struct Found<'a> {
    pub request: &'a Request<'a>,
    pub lir: &'a Lir,
    /// How many values the loop carries.
    carried: usize,
    /// Where works stand.
    positions: IdVec<WorkId, usize>,
    edges: Edges,
    /// By work: those that wait for it.
    waiting: HashMap<WorkId, Vec<WorkId>>,
    /// By what is written, but for arenas: where the works stand that do.
    written: HashMap<Home, Vec<usize>>,
    pub changes: BTreeMap<WorkId, Change>,
    /// Works that are gone, each with those that others wait for in its place.
    pub heirs: HashMap<WorkId, Vec<WorkId>>,
    /// Works that stay as they are: their devices have no kernel on rows.
    refusing: HashSet<WorkId>,
}

impl<'a> Found<'a> {
    pub fn new(request: &'a Request<'a>, lir: &'a Lir) -> Found<'a> {
        let holder = lir.holder(lir.here()).map(|holder| &lir.works[holder].kind);
        let carried = if let Some(WorkKind::Loop { carried, .. }) = holder { *carried } else { 0 };
        let mut found = Found {
            request,
            lir,
            carried,
            positions: IdVec::filled(0, lir.works.len()),
            edges: Edges::new(lir),
            waiting: HashMap::new(),
            written: HashMap::new(),
            changes: BTreeMap::new(),
            heirs: HashMap::new(),
            refusing: HashSet::new(),
        };
        for (position, (id, work)) in lir.all().enumerate() {
            found.positions[id] = position;
            work.after.iter().for_each(|before| found.waiting.entry(*before).or_default().push(id));
        }
        found.search();
        found
    }

    /// The same without works that are refused, and without what was found with them.
    pub fn without(mut self, refusing: impl IntoIterator<Item = WorkId>) -> Found<'a> {
        self.refusing.extend(refusing);
        self.changes.clear();
        self.heirs.clear();
        self.search();
        self
    }

    fn search(&mut self) {
        self.written.clear();
        for (id, work) in self.lir.all() {
            for home in work.outputs.iter().map(|output| self.lir.values[*output].home).filter(|home| *home != Home::Arena) {
                self.written.entry(home).or_default().push(self.positions[id]);
            }
        }
        // A row that is read and written elsewhere is only read at the end: what makes it may make it there.
        for id in self.lir.ids() {
            self.make_in_list(id);
        }
        for id in self.lir.ids() {
            self.read_in_list(id);
        }
    }

    /// Has the work that makes a row make it in the list, in place of a work that writes it there.
    fn make_in_list(&mut self, id: WorkId) -> Option<()> {
        let (lir, work) = (self.lir, &self.lir.works[id]);
        let row = put(work)?;
        let (value, list) = (work.inputs[2].value, work.outputs[0]);
        let maker = self.edges.makers[value]?;
        let made = &lir.works[maker];
        let (argument, own) = (made.outputs.iter().position(|output| *output == value)?, base(made)?);
        let at = self.positions[maker];
        let is_before = |other: Option<WorkId>| other.is_none_or(|other| self.positions[other] < at);
        let older = self.edges.readers[row.list.value].iter().copied().filter(|reader| *reader != id);
        let mut before = older.chain(work.after.iter().copied()).filter(|other| *other != maker);
        // A fault ends the run, and with it what a loop carries. A variable is not to be half written then, nor before others may fail.
        let fits = self.is_carried(lir.values[list].home)
            && self.is_in_arena(value)
            && is_in(lir, &row, value)
            && work.guard.is_none()
            && self.may_change(maker, work)
            && before.all(|other| is_before(Some(other)))
            && [row.list.value, row.index.value].into_iter().all(|value| is_before(self.edges.makers[value]))
            && !self.touches(maker, lir.values[list].home)
            && !self.writes(maker, lir.values[row.index.value].home);
        let is_kept = self.edges.readers[value].len() > 1 || lir.region().results.contains(&value);
        if !fits || (is_kept && !may_keep(own)) || !self.has_room(maker, if is_kept { 3 } else { 2 }) {
            return None;
        }
        let home = lir.values[list].home;
        if let Some(place) = self.written.get_mut(&home).and_then(|all| all.iter_mut().find(|place| **place == self.positions[id])) {
            *place = at;
        }
        let row = Row { of: RowOf { argument: argument as u32, ..row.of }, ..row };
        let change = self.changes.entry(maker).or_default();
        change.after.extend(work.after.iter().copied().filter(|other| *other != maker));
        change.outputs.push(Made { row, list, is_kept, by: id });
        self.heirs.insert(id, vec![maker]);
        Some(())
    }

    /// Has the works that read a row read it in the list, in place of a work that copies it from there.
    fn read_in_list(&mut self, id: WorkId) -> Option<()> {
        let (lir, work) = (self.lir, &self.lir.works[id]);
        let row = take(work)?;
        let value = *work.outputs.first()?;
        let readers = &self.edges.readers[value];
        let from = self.positions[id];
        let last = readers.iter().map(|reader| self.positions[*reader]).max()?;
        let [list, index] = [&row.list, &row.index].map(|view| lir.values[view.value].home);
        let stays = match list {
            // It is there until its last reader, and no longer.
            Home::Arena | Home::Fetch(_) => false,
            Home::Constant(constant) => lir.constants[constant].panels.is_none(),
            _ => true,
        };
        let waiting = self.waiting.get(&id).map_or(&[][..], Vec::as_slice);
        let fits = stays
            && self.is_in_arena(value)
            && !lir.region().results.contains(&value)
            && is_in(lir, &row, value)
            && work.guard.is_none()
            && !work.is_root
            && !self.changes.contains_key(&id)
            && waiting.iter().all(|other| self.positions[*other] > last)
            && [list, index].into_iter().all(|home| !self.is_written(home, from, last))
            // State is not changed before a fault is found.
            && !self.is_state_written(from, last);
        let reads = |reader: &WorkId| {
            let reading = &lir.works[*reader];
            let count = reading.inputs.iter().filter(|view| view.value == value).count();
            // Products read operands by tiles: a copy brings them nearer.
            matches!(reading.kind, WorkKind::Expr { .. })
                && !self.heirs.contains_key(reader)
                && self.may_change(*reader, work)
                && !self.touches(*reader, list)
                && !self.writes(*reader, index)
                && self.has_room(*reader, count)
        };
        if !fits || !readers.iter().all(reads) {
            return None;
        }
        for reader in readers {
            let change = self.changes.entry(*reader).or_default();
            change.after.extend(&work.after);
            for (argument, view) in (0..).zip(&lir.works[*reader].inputs) {
                if view.value == value {
                    change.inputs.push(Row { of: RowOf { argument, ..row.of }, ..row.clone() });
                }
            }
        }
        self.heirs.insert(id, readers.clone());
        Some(())
    }

    fn is_in_arena(&self, value: ValueId) -> bool {
        self.lir.values[value].home == Home::Arena
    }

    /// Whether a work may be on rows that another one reads or writes.
    fn may_change(&self, id: WorkId, other: &Work) -> bool {
        let work = &self.lir.works[id];
        !self.refusing.contains(&id) && work.device == other.device && work.guard.is_none() && !work.is_beside && base(work).is_some()
    }

    /// Whether a work has room for so many arguments more.
    fn has_room(&self, id: WorkId, more: usize) -> bool {
        let work = &self.lir.works[id];
        let rows = self.changes.get(&id).map_or(0, |change| {
            let made = change.outputs.iter().map(|made| if made.is_kept { 3 } else { 2 });
            change.inputs.len() + made.sum::<usize>()
        });
        work.inputs.len() + work.outputs.len() + rows + more <= MAX_ARGS
    }

    /// Whether a work, as it is to be, reads or writes what lies there.
    fn touches(&self, id: WorkId, home: Home) -> bool {
        let at = |value: ValueId| self.lir.values[value].home == home;
        let change = self.changes.get(&id);
        let of_inputs = change.iter().flat_map(|change| &change.inputs).any(|row| at(row.list.value) || at(row.index.value));
        of_inputs || self.lir.works[id].reads().any(at) || self.writes(id, home)
    }

    /// Whether a work, as it is to be, writes what lies there; nothing is written there in an arena.
    fn writes(&self, id: WorkId, home: Home) -> bool {
        let at = |value: ValueId| home != Home::Arena && self.lir.values[value].home == home;
        let mut made = self.changes.get(&id).into_iter().flat_map(|change| &change.outputs);
        made.any(|made| at(made.list)) || self.lir.works[id].outputs.iter().copied().any(at)
    }

    /// Whether a work behind `from`, and not behind `last`, writes what lies there.
    fn is_written(&self, home: Home, from: usize, last: usize) -> bool {
        self.written.get(&home).is_some_and(|places| places.iter().any(|place| (from + 1..=last).contains(place)))
    }

    /// Whether a work between writes what is there behind the loop, too.
    fn is_state_written(&self, from: usize, last: usize) -> bool {
        let state = self.written.iter().filter(|(home, _)| !self.is_carried(**home));
        state.flat_map(|(_, places)| places).any(|place| (from + 1..=last).contains(place))
    }

    /// Whether what lies there goes round in the loop, and is no variable.
    fn is_carried(&self, home: Home) -> bool {
        matches!(home, Home::Given { region, param } if region == self.lir.here() && (param as usize) < self.carried)
    }
}

/// The kernel of a work that may be on rows: the only one of its request, with all arguments.
pub(super) fn base(work: &Work) -> Option<&KernelCall> {
    let is_plain = match &work.kind {
        WorkKind::Expr { .. } | WorkKind::Anchor { .. } => true,
        WorkKind::Kernel { args, .. } => *args == Arg::all(work.inputs.len(), work.outputs.len()),
        _ => false,
    };
    let call = work.prepared.as_ref().and_then(|prepared| prepared.kernel.as_ref()).filter(|_| is_plain)?;
    let is_one = matches!(&call.variant.steps[..], [Step { args: None, .. }]);
    (is_one && !matches!(*call.request, KernelRequest::OnRows(_))).then_some(call)
}

/// Whether a result of a kernel may be there twice.
fn may_keep(call: &KernelCall) -> bool {
    matches!(*call.request, KernelRequest::Expr { .. } | KernelRequest::Anchor { epilogue: Some(_), pooling: None, .. })
}

/// Whether rows of a list are as large as a value, and its index is one integer.
fn is_in(lir: &Lir, row: &Row, value: ValueId) -> bool {
    let bytes = lir.values[value].bytes;
    bytes > 0 && bytes.checked_mul(row.of.rows) == Some(lir.values[row.list.value].bytes) && row.index.elements() == 1
}

/// The row that a work writes into a list, in place: of the tensor that is its third input.
pub(super) fn put(work: &Work) -> Option<Row> {
    let WorkKind::Kernel { call, args } = &work.kind else { return None };
    let KernelRequest::Gather(gather) = &*call.request else { return None };
    let (shape, index_type) = replaced_row(gather)?;
    let is_in_place = args[..] == [Arg::Output(0), Arg::Input(1), Arg::Input(2), Arg::Output(0)];
    row_of(work, *shape.first()?, index_type).filter(|_| is_in_place)
}

/// The row that a work copies from a list.
pub(super) fn take(work: &Work) -> Option<Row> {
    let WorkKind::Kernel { call, args } = &work.kind else { return None };
    let KernelRequest::Gather(Gather::Take { params, axis: 0, batch_dims: 0, index_type, .. }) = &*call.request else { return None };
    row_of(work, *params.first()?, *index_type).filter(|_| *args == Arg::all(2, 1))
}

/// The row of the list that is the first input, at the index that is the second.
fn row_of(work: &Work, rows: u64, index_type: DataType) -> Option<Row> {
    let (list, index) = (work.inputs.first()?.clone(), work.inputs.get(1)?.clone());
    Some(Row { list, index, of: RowOf { argument: 0, rows, index_type } })
}
