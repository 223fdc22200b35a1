//! Offsets for buffers whose lifetimes are known.
//!
//! The input is CSV with the columns `id`, `lower`, `upper` and `size`, in any order: a buffer is live in [lower, upper). One with
//! `lower == upper` is never live, and lies at 0. The output has the same rows and a column `offset`.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::Instant;

use plimsoll_memory::layout::{Buffer, Effort, Enough, pack_with};

use super::{Failure, Words};

/// Steps without `--steps`: a few seconds. The search, for few buffers, has more of them: they are cheaper there.
const FEW: usize = 2000;
const STEPS_FOR_FEW: u64 = 400_000_000;
const STEPS: u64 = 200_000_000;

struct Row {
    id: String,
    lower: i64,
    upper: i64,
    size: u64,
}

pub fn run(arguments: &[String]) -> Result<ExitCode, Failure> {
    let words = Words::parse(arguments, &["--capacity", "--output", "--steps"])?;
    let [input] = words.alone[..] else { return Err(Failure::Usage("offsets takes one file".into())) };
    let output = words.option("--output").ok_or_else(|| Failure::Usage("offsets needs --output".into()))?;
    let capacity = words.number("--capacity")?;
    let text = std::fs::read_to_string(input).map_err(|error| Failure::Failed(format!("{input}: {error}")))?;
    let rows = read(&text).map_err(|message| Failure::Failed(format!("{input}: {message}")))?;
    let buffers = buffers(&rows);
    let enough = capacity.map_or(Enough::Least, Enough::Capacity);
    let steps = words.number("--steps")?.unwrap_or(if rows.len() <= FEW { STEPS_FOR_FEW } else { STEPS });
    let start = Instant::now();
    let layout = pack_with(&buffers, Effort { steps, enough });
    let seconds = start.elapsed().as_secs_f64();
    if layout.peak == u64::MAX {
        return Err(Failure::Failed(format!("{input}: more bytes are live at once than can be counted")));
    }
    std::fs::write(output, write(&rows, &layout.offsets)).map_err(|error| Failure::Failed(format!("{output}: {error}")))?;
    let excess = if layout.lower_bound == 0 { 0.0 } else { 100.0 * (layout.peak as f64 / layout.lower_bound as f64 - 1.0) };
    let fits = capacity.is_none_or(|capacity| layout.peak <= capacity);
    println!(
        "buffers={} max_load={} height={} excess={excess:.3}% steps={} seconds={seconds:.3} {}",
        rows.len(),
        layout.lower_bound,
        layout.peak,
        layout.steps,
        if fits { "OK" } else { "OVER CAPACITY" }
    );
    Ok(if fits { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// # Errors
/// The line and its defect.
fn read(text: &str) -> Result<Vec<Row>, String> {
    let mut lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let (_, header) = lines.next().ok_or("there is no header")?;
    let names: Vec<&str> = header.trim_start_matches('\u{feff}').split(',').map(str::trim).collect();
    let column = |name| names.iter().position(|other| *other == name).ok_or(format!("line 1: there is no column {name}"));
    let (id, lower, upper, size) = (column("id")?, column("lower")?, column("upper")?, column("size")?);
    let mut rows = Vec::new();
    let mut ids = HashSet::new();
    for (line, text) in lines {
        let at = |message: String| format!("line {}: {message}", line + 1);
        let fields: Vec<&str> = text.split(',').map(str::trim).collect();
        let field = |index: usize| fields.get(index).copied().ok_or_else(|| at(format!("there is no {}", names[index])));
        let time = |index: usize| field(index)?.parse::<i64>().map_err(|_| at(format!("{} is no time: {}", names[index], fields[index])));
        let row = Row {
            id: field(id)?.to_string(),
            lower: time(lower)?,
            upper: time(upper)?,
            size: field(size)?.parse().map_err(|_| at(format!("size is no number of bytes: {}", fields[size])))?,
        };
        if row.lower > row.upper {
            return Err(at(format!("lower {} is above upper {}", row.lower, row.upper)));
        }
        if !ids.insert(row.id.clone()) {
            return Err(at(format!("id {} is there twice", row.id)));
        }
        rows.push(row);
    }
    Ok(rows)
}

/// Buffers with the positions of times among all times, which are few enough to count.
fn buffers(rows: &[Row]) -> Vec<Buffer> {
    let mut times: Vec<i64> = rows.iter().flat_map(|row| [row.lower, row.upper]).collect();
    times.sort_unstable();
    times.dedup();
    let position = |time| times.partition_point(|other| *other < time) as u32;
    let buffer = |row: &Row| {
        let (lower, upper) = (position(row.lower), position(row.upper));
        let is_live = lower < upper;
        Buffer { first: lower, last: if is_live { upper - 1 } else { lower }, bytes: if is_live { row.size } else { 0 }, align: 1 }
    };
    rows.iter().map(buffer).collect()
}

fn write(rows: &[Row], offsets: &[u64]) -> String {
    let mut text = "id,lower,upper,size,offset\n".to_string();
    for (Row { id, lower, upper, size }, offset) in rows.iter().zip(offsets) {
        let _ = writeln!(text, "{id},{lower},{upper},{size},{offset}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{buffers, read, write};

    #[test]
    fn columns_are_found_by_name() {
        let rows = read("size,id,upper,lower\n8,a,-2,-5\n16,b,-3,-3\n").ok().unwrap();
        let packed = buffers(&rows);
        assert_eq!((packed[0].first, packed[0].last, packed[0].bytes), (0, 1, 8));
        assert_eq!(packed[1].bytes, 0);
        assert_eq!(write(&rows, &[0, 0]), "id,lower,upper,size,offset\na,-5,-2,8,0\nb,-3,-3,16,0\n");
    }

    #[test]
    fn defects_are_named() {
        let message = |text: &str| read(text).err().unwrap_or_default();
        assert_eq!(message(""), "there is no header");
        assert_eq!(message("id,lower,upper\n"), "line 1: there is no column size");
        assert_eq!(message("id,lower,upper,size\n1,2,1,5\n"), "line 2: lower 2 is above upper 1");
        assert_eq!(message("id,lower,upper,size\n1,0,1\n"), "line 2: there is no size");
        assert_eq!(message("id,lower,upper,size\n1,0,1,-5\n"), "line 2: size is no number of bytes: -5");
        assert_eq!(message("id,lower,upper,size\n1,x,1,5\n"), "line 2: lower is no time: x");
        assert_eq!(message("id,lower,upper,size\n1,0,1,5\n\n1,0,1,5\n"), "line 4: id 1 is there twice");
    }
}
