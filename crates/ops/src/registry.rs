//! The rules of every operation, by name.

use std::collections::HashMap;
use std::sync::Arc;

use plimsoll_base::{Error, Result};
use plimsoll_device::Evaluate;
use plimsoll_graph::{NodeId, OpTable, Output};

use crate::GraphBuilder;
use crate::fusion::Fusion;
use crate::infer::InferFn;
use crate::kernels::KernelRegistry;
use crate::lower::Lower;

/// The rules of one operation.
#[derive(Clone, Copy, Debug)]
pub struct OpRules {
    /// The operation's name.
    pub name: &'static str,
    /// Types, shapes and values of the outputs, as far as they can be known.
    pub infer: InferFn,
    /// The operation's form in a plan.
    pub lower: Lower,
    /// How gradients go through it.
    pub gradient: Gradient,
}

/// How gradients go through an operation.
#[derive(Clone, Copy)]
pub enum Gradient {
    /// Not written yet: asking for a gradient through it is an error.
    Unknown,
    /// None goes through: the operation is constant, or gives integers.
    Stops,
    /// From the gradients of the node's outputs (none where nothing depends on one), those of its inputs.
    Rule(GradientFn),
}

impl std::fmt::Debug for Gradient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Gradient::Unknown => "Unknown",
            Gradient::Stops => "Stops",
            Gradient::Rule(_) => "Rule",
        })
    }
}

/// A gradient rule: `(builder, node, gradients of its outputs) -> gradients of its inputs`.
pub type GradientFn = fn(&mut GraphBuilder, NodeId, &[Option<Output>]) -> Result<Vec<Option<Output>>>;

/// The operations that can be run, beside the table of all that exist and of the kernels that TensorFlow has for them.
#[derive(Debug)]
pub struct Registry {
    table: OpTable,
    rules: HashMap<&'static str, OpRules>,
    kernels: KernelRegistry,
    folding: Option<Arc<dyn Evaluate>>,
    fusions: Vec<Fusion>,
    most_fusions: Option<usize>,
}

impl Registry {
    /// TensorFlow's table and kernels, and the rules of this crate; `folding` computes known values.
    pub fn standard(folding: Arc<dyn Evaluate>) -> Registry {
        let (kernels, folding) = (KernelRegistry::tensorflow(), Some(folding));
        let mut registry = Registry { kernels, folding, ..Registry::with_table(OpTable::tensorflow()) };
        for family in [
            crate::array::RULES,
            crate::checkpoint::RULES,
            crate::control::RULES,
            crate::counted::RULES,
            crate::image::RULES,
            crate::linalg::RULES,
            crate::list::RULES,
            crate::math::RULES,
            crate::nn::RULES,
            crate::optimizer::RULES,
            crate::random::RULES,
            crate::signal::RULES,
            crate::source::RULES,
            crate::variable::RULES,
        ] {
            family.iter().for_each(|rules| registry.extend(rules));
        }
        registry.fusions = [crate::array::FUSIONS, crate::math::FUSIONS, crate::nn::FUSIONS].concat().concat();
        registry
    }

    /// A table without rules and kernels; nothing is folded or fused.
    pub fn with_table(table: OpTable) -> Registry {
        Registry { table, rules: HashMap::new(), kernels: KernelRegistry::empty(), folding: None, fusions: Vec::new(), most_fusions: None }
    }

    /// Adds rules, or replaces those of the same name.
    pub fn extend(&mut self, rules: &[OpRules]) {
        self.rules.extend(rules.iter().map(|rules| (rules.name, *rules)));
    }

    /// The rewrites of works that operations bring, in the order in which they are tried.
    pub fn fusions(&self) -> &[Fusion] {
        &self.fusions
    }

    /// With a fusion that is tried after the others.
    #[must_use]
    pub fn with_fusion(mut self, fusion: Fusion) -> Registry {
        self.fusions.push(fusion);
        self
    }

    /// How many fusions a plan may have; none is no limit.
    pub fn most_fusions(&self) -> Option<usize> {
        self.most_fusions
    }

    /// With at most so many fusions in a plan, expressions that are joined among them: for looking for the one that is wrong.
    pub fn with_most_fusions(self, most: usize) -> Registry {
        Registry { most_fusions: Some(most), ..self }
    }

    /// The table of operations.
    pub fn table(&self) -> &OpTable {
        &self.table
    }

    /// Computes values that are known beforehand.
    pub fn folding(&self) -> Option<&dyn Evaluate> {
        self.folding.as_deref()
    }

    /// The kernels that exist, by device type: placement looks at them.
    pub fn kernels(&self) -> &KernelRegistry {
        &self.kernels
    }

    /// Other kernels than before.
    pub fn with_kernels(self, kernels: KernelRegistry) -> Registry {
        Registry { kernels, ..self }
    }

    /// The rules of an operation.
    pub fn get(&self, op: &str) -> Option<&OpRules> {
        self.rules.get(op)
    }

    /// The rules of an operation.
    ///
    /// # Errors
    /// NOT_FOUND where no such operation exists, UNIMPLEMENTED where it has no rules here.
    pub fn require(&self, op: &str) -> Result<&OpRules> {
        if let Some(rules) = self.rules.get(op) {
            return Ok(rules);
        }
        self.table.require(op)?;
        Err(Error::unimplemented(format!("operation {op} is not built yet")))
    }

    /// The names of all operations with rules, sorted.
    pub fn names(&self) -> Vec<&'static str> {
        let mut names: Vec<&'static str> = self.rules.keys().copied().collect();
        names.sort_unstable();
        names
    }
}
