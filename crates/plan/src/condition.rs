//! The conditions under which nodes run, as functions of the predicates of Switches. They are reduced ordered binary decision
//! diagrams: equal functions are the same number.

use std::collections::HashMap;

use plimsoll_base::{Error, Result};

use crate::lir::ValueId;

/// A function of the predicates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Condition(u32);

impl Condition {
    pub const NEVER: Condition = Condition(0);
    pub const ALWAYS: Condition = Condition(1);

    pub fn known(holds: bool) -> Condition {
        if holds { Condition::ALWAYS } else { Condition::NEVER }
    }
}

/// `if_true` where the predicate holds, else `if_false`; both look at earlier predicates only, so that a nested condition adds one
/// test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Test {
    pub predicate: u32,
    pub if_true: Condition,
    pub if_false: Condition,
}

/// The functions made so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Conditions {
    /// The value behind each predicate: a bool in memory.
    predicates: Vec<ValueId>,
    tests: Vec<Test>,
    known: HashMap<Test, Condition>,
}

/// A larger diagram takes longer than it is worth, and functions are walked by recursion.
const MAX_PREDICATES: usize = 1024;
const MAX_TESTS: usize = 1 << 18;

impl Conditions {
    /// That the bool behind `value` is true.
    ///
    /// # Errors
    /// UNIMPLEMENTED for too many of them.
    pub fn predicate(&mut self, value: ValueId) -> Result<Condition> {
        let index = self.predicates.iter().position(|known| *known == value).unwrap_or(self.predicates.len());
        if index == self.predicates.len() {
            if index == MAX_PREDICATES {
                return Err(Error::unimplemented(format!("not yet: more than {MAX_PREDICATES} predicates in one run")));
            }
            self.predicates.push(value);
        }
        self.test(index as u32, Condition::ALWAYS, Condition::NEVER)
    }

    /// The value behind a predicate.
    pub fn value(&self, predicate: u32) -> ValueId {
        self.predicates[predicate as usize]
    }

    /// The first predicate of a function; none for the constant ones.
    pub fn first_test(&self, condition: Condition) -> Option<Test> {
        (condition.0 >= 2).then(|| self.tests[condition.0 as usize - 2])
    }

    fn test(&mut self, predicate: u32, if_true: Condition, if_false: Condition) -> Result<Condition> {
        if if_true == if_false {
            return Ok(if_true);
        }
        let test = Test { predicate, if_true, if_false };
        if let Some(known) = self.known.get(&test) {
            return Ok(*known);
        }
        if self.tests.len() == MAX_TESTS {
            return Err(Error::unimplemented("not yet: conditions as tangled as these"));
        }
        self.tests.push(test);
        let condition = Condition(self.tests.len() as u32 + 1);
        self.known.insert(test, condition);
        Ok(condition)
    }

    /// `if_true` where `condition` holds, else `if_false`.
    fn choose(
        &mut self,
        condition: Condition,
        if_true: Condition,
        if_false: Condition,
        made: &mut HashMap<[Condition; 3], Condition>,
    ) -> Result<Condition> {
        match condition {
            Condition::ALWAYS => return Ok(if_true),
            Condition::NEVER => return Ok(if_false),
            _ if if_true == if_false => return Ok(if_true),
            _ => {}
        }
        let key = [condition, if_true, if_false];
        if let Some(known) = made.get(&key) {
            return Ok(*known);
        }
        let first = key.iter().filter_map(|part| self.first_test(*part)).map(|test| test.predicate).max();
        let predicate = first.ok_or_else(|| Error::internal("a condition without predicates"))?;
        let side = |conditions: &Conditions, part: Condition, holds: bool| match conditions.first_test(part) {
            Some(test) if test.predicate == predicate => {
                if holds {
                    test.if_true
                } else {
                    test.if_false
                }
            }
            _ => part,
        };
        let [on, off] = [true, false].map(|holds| key.map(|part| side(self, part, holds)));
        let on = self.choose(on[0], on[1], on[2], made)?;
        let off = self.choose(off[0], off[1], off[2], made)?;
        let result = self.test(predicate, on, off)?;
        made.insert(key, result);
        Ok(result)
    }

    /// That both hold.
    ///
    /// # Errors
    /// UNIMPLEMENTED where the result is too large; so it is with the other functions.
    pub fn and(&mut self, a: Condition, b: Condition) -> Result<Condition> {
        self.choose(a, b, Condition::NEVER, &mut HashMap::new())
    }

    /// That one of them holds.
    pub fn or(&mut self, a: Condition, b: Condition) -> Result<Condition> {
        self.choose(a, Condition::ALWAYS, b, &mut HashMap::new())
    }

    /// That it does not hold.
    pub fn not(&mut self, a: Condition) -> Result<Condition> {
        self.choose(a, Condition::NEVER, Condition::ALWAYS, &mut HashMap::new())
    }

    /// Whether `b` holds wherever `a` does.
    pub fn implies(&mut self, a: Condition, b: Condition) -> Result<bool> {
        Ok(self.choose(a, b, Condition::ALWAYS, &mut HashMap::new())? == Condition::ALWAYS)
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_graph::id::Id;
    use proptest::prelude::*;

    use super::*;

    fn holds(conditions: &Conditions, condition: Condition, world: u32) -> bool {
        match conditions.first_test(condition) {
            None => condition == Condition::ALWAYS,
            Some(test) => {
                let side = if world >> conditions.value(test.predicate).index() & 1 == 1 { test.if_true } else { test.if_false };
                holds(conditions, side, world)
            }
        }
    }

    proptest! {
        /// Random formulas over four predicates: the diagrams agree with the formulas, and equal ones are the same.
        #[test]
        fn say_what_formulas_say(steps in prop::collection::vec((0u8..4, 0usize..40, 0usize..40), 1..40)) {
            let mut conditions = Conditions::default();
            let mut made: Vec<(Condition, u32)> = vec![(Condition::NEVER, 0), (Condition::ALWAYS, 0xffff)];
            for predicate in 0..4u32 {
                let table = (0..16).filter(|world| world >> predicate & 1 == 1).fold(0, |table, world| table | 1 << world);
                made.push((conditions.predicate(ValueId::from_index(predicate as usize)).unwrap(), table));
            }
            for (kind, a, b) in steps {
                let ((a, left), (b, right)) = (made[a % made.len()], made[b % made.len()]);
                let next = match kind {
                    0 => (conditions.and(a, b).unwrap(), left & right),
                    1 => (conditions.or(a, b).unwrap(), left | right),
                    2 => (conditions.not(a).unwrap(), !left & 0xffff),
                    _ => {
                        prop_assert_eq!(conditions.implies(a, b).unwrap(), left & !right == 0);
                        continue;
                    }
                };
                made.push(next);
            }
            for (condition, table) in &made {
                prop_assert!((0..16).all(|world| holds(&conditions, *condition, world) == (table >> world & 1 == 1)));
                prop_assert!(made.iter().all(|(other, theirs)| (other == condition) == (theirs == table)));
            }
        }
    }

    #[test]
    fn a_chain_as_long_as_is_allowed_is_walked() {
        let mut conditions = Conditions::default();
        let mut all = Condition::ALWAYS;
        for predicate in 0..MAX_PREDICATES {
            let next = conditions.predicate(ValueId::from_index(predicate)).unwrap();
            all = conditions.and(all, next).unwrap();
        }
        let not = conditions.not(all).unwrap();
        assert_eq!(conditions.and(all, not).unwrap(), Condition::NEVER);
        assert!(conditions.predicate(ValueId::from_index(MAX_PREDICATES)).is_err());
    }
}
