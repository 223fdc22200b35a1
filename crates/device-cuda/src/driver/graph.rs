//! Graphs: work that is made once and launched by one call.

use std::ffi::c_void;
use std::sync::Arc;

use super::raw::{self, ConditionalNode, CopyNode, CopySide, FillNode, Handle, KernelNode, Trouble};
use super::{Argument, Context, Function, Stream, call};

/// A graph that is being made: each node comes behind the one before. The calling thread is in the card's context.
#[derive(Debug)]
pub(crate) struct Graph {
    context: Arc<Context>,
    handle: Handle,
    last: Option<Handle>,
    nodes: usize,
    /// The bodies in it, and in these.
    bodies: usize,
    /// A body goes with its graph.
    is_body: bool,
}

/// The value that a conditional node looks at: a kernel sets it. It is 0 when a graph is launched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Condition(u64);

impl Condition {
    /// What a kernel that sets it is given.
    pub fn handle(self) -> u64 {
        self.0
    }
}

/// The longest copy that is a node: the driver bounds the length of a row.
pub(crate) const LONGEST_COPY: u64 = (1 << 31) - 1;

impl Graph {
    /// A graph without nodes.
    pub fn new(context: &Arc<Context>) -> Result<Graph, Trouble> {
        let mut handle = std::ptr::null_mut();
        call!(context.driver, graph_create(&mut handle, 0))?;
        Ok(Graph { context: context.clone(), handle, last: None, nodes: 0, bodies: 0, is_body: false })
    }

    fn add(&mut self, add: impl FnOnce(&Context, *mut Handle, Handle, *const Handle, usize) -> Result<(), Trouble>) -> Result<(), Trouble> {
        let mut node = std::ptr::null_mut();
        let after = self.last.as_slice();
        add(&self.context, &mut node, self.handle, after.as_ptr(), after.len())?;
        self.last = Some(node);
        self.nodes += 1;
        Ok(())
    }

    /// A kernel, as [`Stream::launch`] launches it. Its arguments are read now.
    pub fn kernel(&mut self, function: Function, blocks: u32, threads: u32, arguments: &mut [Argument]) -> Result<(), Trouble> {
        let mut places: Vec<*mut c_void> = arguments.iter_mut().map(|argument| (&raw mut *argument).cast()).collect();
        let node = KernelNode {
            function: function.0,
            blocks: [blocks, 1, 1],
            threads: [threads, 1, 1],
            shared: 0,
            params: places.as_mut_ptr(),
            extra: std::ptr::null_mut(),
            kernel: std::ptr::null_mut(),
            context: self.context.handle(),
        };
        self.add(|context, place, graph, after, count| call!(context.driver, graph_kernel(place, graph, after, count, &node)))
    }

    /// A copy of at most [`LONGEST_COPY`] bytes, and at least one.
    pub fn copy(&mut self, to: Spot, from: Spot, bytes: u64) -> Result<(), Trouble> {
        let bytes = bytes as usize;
        let node = CopyNode { from: from.side(bytes), to: to.side(bytes), width: bytes, height: 1, depth: 1 };
        self.add(|context, place, graph, after, count| {
            call!(context.driver, graph_copy(place, graph, after, count, &node, context.handle()))
        })
    }

    /// Fills bytes of the card; at least one.
    pub fn set_bytes(&mut self, address: u64, value: u8, bytes: u64) -> Result<(), Trouble> {
        let node = FillNode { to: address, pitch: 0, value: value.into(), element: 1, width: bytes as usize, height: 1 };
        self.add(|context, place, graph, after, count| {
            call!(context.driver, graph_fill(place, graph, after, count, &node, context.handle()))
        })
    }

    /// Work that was captured, with its own order.
    pub fn child(&mut self, captured: &Captured) -> Result<(), Trouble> {
        self.add(|context, place, graph, after, count| call!(context.driver, graph_child(place, graph, after, count, captured.handle)))?;
        self.nodes += captured.nodes()?;
        Ok(())
    }

    /// A condition for one conditional node of this graph.
    pub fn condition(&mut self) -> Result<Condition, Trouble> {
        let mut handle = 0;
        let context = self.context.handle();
        call!(self.context.driver, graph_condition(&mut handle, self.handle, context, 0, raw::WITH_DEFAULT))?;
        Ok(Condition(handle))
    }

    /// A body that runs once where the condition is not 0, or, where it `repeats`, as long as the condition is not 0. `fill` adds the body's
    /// nodes: kernels, copies, fills, children without conditions, and bodies.
    pub fn body(
        &mut self,
        condition: Condition,
        repeats: bool,
        fill: impl FnOnce(&mut Graph) -> Result<(), Trouble>,
    ) -> Result<(), Trouble> {
        let mut node = ConditionalNode {
            kind: raw::CONDITIONAL,
            reserved: [0; 3],
            condition: condition.0,
            form: if repeats { raw::WHILE } else { raw::IF },
            count: 1,
            bodies: std::ptr::null(),
            context: self.context.handle(),
            rest: [0; 26],
        };
        let edges = std::ptr::null();
        self.add(|context, place, graph, after, count| call!(context.driver, graph_node(place, graph, after, edges, count, &mut node)))?;
        // SAFETY: the driver gave a list of one body, which lives as long as the node.
        let handle = unsafe { node.bodies.as_ref() }.copied().ok_or(Trouble::INVALID_VALUE)?;
        let mut body = Graph { context: self.context.clone(), handle, last: None, nodes: 0, bodies: 0, is_body: true };
        fill(&mut body)?;
        self.nodes += body.nodes;
        self.bodies += 1 + body.bodies;
        Ok(())
    }

    /// How many nodes it has, those of its children and bodies among them.
    pub fn nodes(&self) -> usize {
        self.nodes
    }

    /// How many graphs it is: itself, and its bodies.
    pub fn graphs(&self) -> usize {
        1 + self.bodies
    }

    /// The graph, ready to be launched on the context's streams, and on the card already.
    pub fn instantiate(self, stream: &Stream) -> Result<GraphExec, Trouble> {
        let mut handle = std::ptr::null_mut();
        call!(self.context.driver, graph_instantiate(&mut handle, self.handle, 0))?;
        let context = self.context.clone();
        let _conditions = (self.bodies > 0).then_some(self);
        let executable = GraphExec { context, handle, _conditions };
        call!(executable.context.driver, graph_upload(handle, stream.handle()))?;
        Ok(executable)
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        if !self.is_body {
            let _ = call!(self.context.driver, graph_destroy(self.handle));
        }
    }
}

/// What was pushed on a stream while that was captured.
#[derive(Debug)]
pub(crate) struct Captured {
    context: Arc<Context>,
    handle: Handle,
}

/// `CU_STREAM_CAPTURE_MODE_RELAXED`: what is loaded meanwhile is no part of it.
const RELAXED: i32 = 2;

impl Captured {
    /// Captures what `push` pushes on a stream of its own. The calling thread is in the card's context.
    pub fn of(context: &Arc<Context>, push: impl FnOnce(&Stream) -> Result<(), Trouble>) -> Result<Captured, Trouble> {
        let stream = Stream::new(&context.driver, 0)?;
        call!(context.driver, capture_begin(stream.handle(), RELAXED))?;
        let pushed = push(&stream);
        let mut handle = std::ptr::null_mut();
        let ended = call!(context.driver, capture_end(stream.handle(), &mut handle));
        let captured = Captured { context: context.clone(), handle };
        pushed.and(ended).map(|()| captured)
    }

    fn nodes(&self) -> Result<usize, Trouble> {
        let mut count = 0;
        call!(self.context.driver, graph_nodes(self.handle, std::ptr::null_mut(), &mut count)).map(|()| count)
    }
}

impl Drop for Captured {
    fn drop(&mut self) {
        if !self.handle.is_null() {
            let _ = call!(self.context.driver, graph_destroy(self.handle));
        }
    }
}

/// One end of a copy in a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spot {
    /// An address of the card.
    Card(u64),
    /// Pinned memory, which lives as long as the graph.
    Pinned(*mut u8),
}

impl Spot {
    fn side(self, bytes: usize) -> CopySide {
        let null = std::ptr::null_mut();
        let (kind, host, device) = match self {
            Spot::Card(address) => (raw::OF_A_CARD, null, address),
            Spot::Pinned(start) => (raw::OF_THE_HOST, start.cast(), 0),
        };
        CopySide { offsets: [0; 4], kind, host, device, array: null, reserved: null, pitch: bytes, height: 1 }
    }
}

/// A graph that can be launched.
#[derive(Debug)]
pub(crate) struct GraphExec {
    context: Arc<Context>,
    handle: Handle,
    /// What it was made from, where that has conditions: they belong to it.
    _conditions: Option<Graph>,
}

// SAFETY: it may be used from any thread, one at a time.
unsafe impl Send for GraphExec {}

impl GraphExec {
    /// Launches it. The memory that its nodes name lives until it has run.
    pub fn launch(&self, stream: &Stream) -> Result<(), Trouble> {
        call!(self.context.driver, graph_launch(self.handle, stream.handle()))
    }
}

impl Drop for GraphExec {
    fn drop(&mut self) {
        let _entered = self.context.enter();
        let _ = call!(self.context.driver, graph_exec_destroy(self.handle));
    }
}
