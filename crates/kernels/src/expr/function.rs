//! Functions of one value, for tiles of results on their way from registers to memory: GELU, sigmoid, swish and the like.

use std::fmt;
use std::mem::MaybeUninit;

use plimsoll_base::DataType;
use plimsoll_request::expr::{Expr, ExprBuilder, Instr, Reg, Uses};

use super::program::{Bases, Number, TileProgram};
use crate::simd::Isa;

/// Elements that are computed at a time: as many as the largest tile of results has.
const TOGETHER: usize = 384;
/// The most steps.
const MOST: usize = 64;
/// The most bytes of scratch, which is on the stack.
const SCRATCH: usize = 16 << 10;

/// A function of one float.
pub(crate) struct Function {
    program: TileProgram,
    /// Its numbers: a tile is too small to fill them out anew.
    numbers: Vec<Number>,
}

impl fmt::Debug for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Function").field(&self.program).finish()
    }
}

#[repr(align(64))]
struct Scratch(MaybeUninit<[u8; SCRATCH]>);

impl Function {
    /// The steps behind `value` that are computed from it alone, up to the first float that is all that later steps read of them: that
    /// float, and the function that makes it. None where steps read other operands, too, are too many, or can fail; and on
    /// processors of few registers, whose tiles are too small for a call.
    pub fn from(expr: &Expr, uses: &Uses, value: Reg, isa: Isa) -> Option<(Reg, Function)> {
        if isa == Isa::Portable {
            return None;
        }
        let instrs = expr.instrs();
        let mut builder = ExprBuilder::new();
        let mut made = vec![None; instrs.len()];
        made[value.0 as usize] = Some(builder.input(DataType::Float).ok()?);
        let mut inside = vec![value];
        for (at, instr) in instrs.iter().enumerate().skip(value.0 as usize + 1).filter(|(at, _)| uses.needed[*at]) {
            let operands = instr.operands();
            if !operands.iter().flatten().any(|reg| inside.contains(reg)) {
                continue;
            }
            for reg in operands.iter().flatten() {
                match instrs[reg.0 as usize] {
                    Instr::Const(number) => made[reg.0 as usize] = Some(builder.constant(number)),
                    _ if inside.contains(reg) => {}
                    _ => return None,
                }
            }
            let reg = Reg(at as u32);
            made[at] = Some(again(&mut builder, instr, |reg| made[reg.0 as usize])?);
            inside.push(reg);
            if inside.len() > MOST {
                return None;
            }
            let is_all = inside.iter().all(|other| *other == reg || uses.last[other.0 as usize] <= at);
            if is_all && expr.type_of(reg) == DataType::Float {
                let expr = builder.finish(vec![made[at]?]);
                let shape = vec![TOGETHER as u64];
                let program = TileProgram::new(&expr, &shape, std::slice::from_ref(&shape), isa).ok()?;
                let fits = !expr.can_fail() && program.scratch() as usize <= SCRATCH;
                return fits.then(|| (reg, Function { numbers: program.numbers(), program }));
            }
        }
        None
    }

    /// Applies it to `count` values in place.
    ///
    /// # Safety
    /// So many floats are there, which no other thread uses.
    #[inline(never)]
    pub unsafe fn apply(&self, values: *mut f32, count: usize) {
        let mut scratch = Scratch(MaybeUninit::uninit());
        let scratch = (&raw mut scratch.0).cast::<u8>();
        for first in (0..count).step_by(TOGETHER) {
            let part = values.wrapping_add(first).cast::<u8>();
            let bases = Bases { first: part, rest: &[part] };
            // SAFETY: the part has as many floats as are computed; scratch is as large and aligned as the program asks for. The one
            // operand is as large as the result, which may lie where it does.
            let done = unsafe {
                self.program.begin_with(&self.numbers, &bases, scratch);
                self.program.run(0..TOGETHER.min(count - first), &bases, scratch)
            };
            debug_assert!(done.is_ok(), "steps on floats do not fail");
        }
    }
}

/// The step once more, with the operands that are made.
fn again(builder: &mut ExprBuilder, instr: &Instr, made: impl Fn(Reg) -> Option<Reg>) -> Option<Reg> {
    let step = match *instr {
        Instr::Unary(op, a) => builder.unary(op, made(a)?),
        Instr::Binary(op, a, b) => builder.binary(op, made(a)?, made(b)?),
        Instr::Select(condition, a, b) => builder.select(made(condition)?, made(a)?, made(b)?),
        Instr::Cast(data_type, a) => builder.cast(data_type, made(a)?),
        Instr::Input(_) | Instr::Const(_) => return None,
    };
    step.ok()
}
