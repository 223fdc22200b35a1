//! Faults that are planted in the text of generated kernels are found: races, barriers that are missing, places that are one too far.
//!
//! A fault is a change of the text. One that changes no kernel any more fails the test: it has to be planted elsewhere.

use plimsoll_device_cuda::emit::{self, Emitted, Kernel};
use plimsoll_ptx::{Host, HostProgram, Module, Nvrtc};

use super::cases::Case;
use super::engines::Run;
use super::{anchors, cases, drawn, expressions, forms, normalizing, pooled};

/// A fault: the kernels that have it, what is changed, and what the interpreter says of it. The processor's compiler says something, too, or the
/// results differ.
struct Planted {
    kernel: &'static str,
    from: &'static str,
    to: &'static str,
    /// One of these.
    said: &'static [&'static str],
    /// Whether it shows in bytes: threads that write the same to one place do so by the interpreter alone.
    shows: bool,
}

const RACE: &[&str] = &["race"];
/// One place too far: nobody's, or another thread's.
const BEYOND: &[&str] = &["out of bounds", "race"];
/// Places of others: it is a race, or the results are wrong, by what else there is.
const OTHER: &[&str] = &[""];

/// Words of several elements that begin in the middle of one.
const ASIDE: &[&str] = &["misaligned"];

const fn planted(kernel: &'static str, from: &'static str, to: &'static str, said: &'static [&'static str]) -> Planted {
    Planted { kernel, from, to, said, shows: true }
}

/// Threads that write the same to one place.
const fn unseen(kernel: &'static str, from: &'static str, to: &'static str) -> Planted {
    Planted { kernel, from, to, said: RACE, shows: false }
}

/// A barrier in a tree of sums.
const IN_A_TREE: [&str; 2] = ["half /= 2) {\n  __syncthreads();", "half /= 2) {"];

/// Normalizations.
const NORMS: &[Planted] = &[
    planted("norm_parts", IN_A_TREE[0], IN_A_TREE[1], RACE),
    planted("norm_parts", "if (inside && lane == 0) {\n", "if (inside) {\n", RACE),
    planted("norm_parts", "inside = c < channels", "inside = c <= channels", OTHER),
    planted("statistics", IN_A_TREE[0], IN_A_TREE[1], RACE),
    unseen("statistics", "if (inside && lane == 0) {", "if (inside) {"),
    planted("statistics", "part < count; part", "part <= count; part", BEYOND),
    planted("normalize", "r = first + lane; r < end", "r = first; r < end", RACE),
    planted("normalize", "inside = c < channels", "inside = c <= channels", BEYOND),
    planted("norm_products", IN_A_TREE[0], IN_A_TREE[1], RACE),
    unseen("norm_products", "if (inside && lane == 0) q[part", "if (inside) q[part"),
    planted("norm_products", "r = first + lane; r < end", "r = first + lane; r <= end", BEYOND),
    planted("norm_sums", IN_A_TREE[0], IN_A_TREE[1], RACE),
    planted("norm_sums", "part < count; part", "part <= count; part", BEYOND),
    planted("norm_grad", "r = first + lane; r < end", "r = first; r < end", RACE),
    planted("norm_grad", "r = first + lane; r < end", "r = first + lane; r <= end", BEYOND),
    planted("lrn", "i + (channels - 1 - c)", "i + (channels - c)", BEYOND),
    planted("lrn_shares", "j <= last", "j <= last + 1", BEYOND),
    planted("lrn_grad", "q[i] = y", "q[i / 2] = y", RACE),
];

/// Normalizations by sums: channels far from 0 are not summed anew, or not all of their rows are.
const OF_SUMS: &[Planted] = &[
    planted("statistics", "if (!(mean_of * mean_of <= 256.0f * left)) far = 1;", "", OTHER),
    planted("statistics", "k < channels && k <", "k <", BEYOND),
    planted("statistics", "squares = left * (f32)rows", "squares = left", OTHER),
    planted("statistics", IN_A_TREE[0], IN_A_TREE[1], RACE),
    planted("statistics", "r = lane; r < rows", "r = lane; r + 1 < rows", OTHER),
    planted("statistics", "r = lane; r < rows", "r = lane; r <= rows", BEYOND),
    unseen("statistics", "if (inside && lane == 0) {", "if (inside) {"),
];

/// Rows of a softmax, and reductions.
const ROWS: &[Planted] = &[
    planted("fold", "  __syncthreads();\n  if (lane < 1)", "  if (lane < 1)", RACE),
    planted("fold", "if (lane == 0 && k < results)", "if (k < results)", RACE),
    planted("fold", "r < end; r +=", "r <= end; r +=", BEYOND),
    planted("fold", "  __syncthreads();\n  if (lane < 1) _Pragma", "  if (lane < 1) _Pragma", RACE),
    planted("fold", "threadIdx.x % 16) * 4", "threadIdx.x % 16) * 3", OTHER),
    planted("fold_parts", "r < end; r +=", "r <= end; r +=", BEYOND),
    planted("softmax", "  __syncthreads();\n  a = tree", "  a = tree", RACE),
    planted("softmax", "  __syncthreads();\n  a[0] = tree", "  a[0] = tree", RACE),
    planted("softmax", "tree[j * THREADS + threadIdx.x] = a[j]", "tree[threadIdx.x] = a[j]", OTHER),
    planted("log_softmax", "c = lane * 4; c < classes", "c = lane * 4; c <= classes", BEYOND),
    planted("softmax", "c = lane; c < classes", "c = lane; c <= classes", BEYOND),
    planted("cross_entropy", "  __syncthreads();\n  a = tree", "  a = tree", RACE),
    planted("cross_entropy", "inside = k < rows", "inside = k <= rows", BEYOND),
    planted("scan", "k < length; ++k", "k <= length; ++k", BEYOND),
];

/// Products and convolutions.
const ANCHORS: &[Planted] = &[
    planted("product", "  __syncthreads();\n  if (last - at", "  if (last - at", RACE),
    planted("product", "at += 16) {\n  __syncthreads();", "at += 16) {", RACE),
    planted("product", "if (i < m && j < n)", "if (i < m && j <= n)", OTHER),
    planted("product", "+ tx * 4 + s % 4;\n", "+ s % 4;\n", RACE),
    planted("conv", "  __syncthreads();\n  if (last - at", "  if (last - at", RACE),
    planted("conv", "if (i < m && j < n)", "if (i <= m && j < n)", BEYOND),
    planted("conv_by_input", "at += 16) {\n  __syncthreads();", "at += 16) {", RACE),
    planted("conv_by_filter", "  __syncthreads();\n  if (last - at", "  if (last - at", RACE),
    planted("conv_by_filter", "y_here[r] = line < n", "y_here[r] = line <= n", BEYOND),
    planted("join", "p = 1; p < count", "p = 1; p <= count", BEYOND),
    planted("join", "e = g * 4 + s", "e = g * 4", OTHER),
    planted("depthwise", "(u32)p0 < (u32)size0", "(u32)p0 <= (u32)size0", BEYOND),
    planted("depthwise", "e = g * 4", "e = g * 2", ASIDE),
    planted("depthwise_by_input", "(c + e) = made", "(c + e + 4) = made", BEYOND),
    planted("depthwise", "c[e] = sum", "c[e / 2] = sum", RACE),
    planted("depthwise_by_input", "p0 < (u32)positions0 ", "p0 <= (u32)positions0 ", BEYOND),
    planted("depthwise_by_filter", "  __syncthreads();\n  if (lane < 1)", "  if (lane < 1)", RACE),
    planted("depthwise_by_filter", "  sums[threadIdx.x] = sum;\n  __syncthreads();", "  sums[threadIdx.x] = sum;", RACE),
    unseen("depthwise_by_filter", "if (lane == 0 && j < n)", "if (j < n)"),
    planted("depthwise_by_filter", "if (j < n) {", "if (j <= n) {", BEYOND),
];

/// Kernels whose threads have nothing in common.
const OTHERS: &[Planted] = &[
    planted("exprs", "g = begin + threadIdx.x", "g = begin + threadIdx.x / 2", RACE),
    planted("exprs", "if (i + 4 <= n)", "if (i <= n)", BEYOND),
    planted("exprs", "blockIdx.x < first_1)", "blockIdx.x <= first_1)", OTHER),
    planted("max_pool_places", "o1 < size1", "o1 <= size1", OTHER),
    planted("max_pool_places", "(places + i) =", "(places + i / 2) =", RACE),
    planted("max_pool", "i = g * 4, rest", "i = g * 2, rest", ASIDE),
    planted("max_pool_grad", "c *= 4;", "c *= 5;", ASIDE),
    planted("max_pool_grad", "o2 <= last2", "o2 <= last2 + 1", BEYOND),
    planted("avg_pool_grad", "(q + i) = made", "(q + i + 1) = made", BEYOND),
    planted("take", "q[i] =", "q[i / 2] =", RACE),
    planted("rows", "row >= end", "row > end", RACE),
    planted("concat", "c < w0", "c <= w0", BEYOND),
    planted("in_top_k", "  __syncthreads();\n  if (lane < 1)", "  if (lane < 1)", RACE),
    planted("in_top_k", "c < classes", "c <= classes", BEYOND),
    planted("in_top_k", "if (lane == 0 && row < rows)", "if (lane == 0)", BEYOND),
    planted("key_counter", "key[0] =", "key[1] =", BEYOND),
    unseen("key_counter", "if (threadIdx.x == 0)", "if (threadIdx.x < 2)"),
    planted("require", "!*condition", "!condition[1]", BEYOND),
    planted("resize", "upper1) * words + c", "upper1) * words + c + 1", OTHER),
    planted("resize", "q)[i] = made", "q)[i / 2] = made", RACE),
    planted("random", "if (g * 4 + at < n)", "if (g * 4 + at <= n)", BEYOND),
    planted("random", "if (g * 4 + 4 <= n)", "if (g * 4 <= n)", BEYOND),
    planted("one_hot", "(q + i * 4) = made", "(q + i * 4 + 4) = made", BEYOND),
];

/// Kernels that bring tensors into the form of cuDNN.
const FORMS: &[Planted] = &[
    planted("pad", "c + k < channels ?", "c + k <= channels ?", OTHER),
    planted("pad", "q[i] = made", "q[i / 2] = made", RACE),
    planted("pad", "at = p + row * channels", "at = p + (row + 1) * channels", BEYOND),
];

/// Of the cases whose kernels a fault changes, the largest so many are run.
const TRIED: usize = 3;

/// A run of a kernel with a fault. Faults of all tests are compiled together: each has names of its own.
struct Trial {
    fault: usize,
    run: Run,
}

/// Cases with the kernels of their requests.
fn with_kernels(cases: Vec<Case>) -> Vec<(Case, Emitted)> {
    let with = |case: Case| emit::emit(&case.request).ok().map(|emitted| (case, emitted));
    cases.into_iter().filter_map(with).collect()
}

/// The runs that a fault changes.
fn trials(cases: &[(Case, Emitted)], number: usize, fault: &Planted) -> Vec<Trial> {
    let has_it =
        |kernel: &Kernel| kernel.entry.rsplit_once('_').is_some_and(|(name, _)| name == fault.kernel) && kernel.body.contains(fault.from);
    let changed = cases.iter().filter_map(|(case, emitted)| {
        let mut kernels = emitted.kernels.clone();
        if !kernels.iter().any(has_it) {
            return None;
        }
        for kernel in &mut kernels {
            if has_it(kernel) {
                let entry = format!("{}_fault{number}", kernel.entry);
                kernel.body = kernel.body.replacen(fault.from, fault.to, 1).replace(&kernel.entry, &entry);
                kernel.entry = entry;
            }
        }
        let run = case.by(Emitted { kernels, ..emitted.clone() }).ok()?;
        Some(Trial { fault: number, run })
    });
    let mut changed: Vec<Trial> = changed.collect();
    changed.sort_by_key(|trial| std::cmp::Reverse(trial.run.inputs.iter().map(Vec::len).sum::<usize>()));
    changed.truncate(TRIED);
    changed
}

/// Whether the processor's run of a fault shows it.
fn shows_on_the_host(program: &HostProgram, run: &Run) -> bool {
    let mut results = Vec::new();
    for descending in [false, true] {
        let mut jobs = [run.job()];
        if program.run(&mut jobs, descending).is_err() {
            return true;
        }
        let inputs_stay = run.in_place.is_some() || run.inputs.iter().zip(&jobs[0].buffers).all(|(before, behind)| before == behind);
        if !inputs_stay || run.differs(&run.result(&jobs[0])).is_some() {
            return true;
        }
        results.push(jobs);
    }
    results[0] != results[1]
}

/// What the interpreter says of a fault.
fn said_of(module: &Module, run: &Run) -> Option<String> {
    let mut job = run.job();
    module.run(&mut job).err().or_else(|| run.differs(&run.result(&job)))
}

fn check(cases: Vec<Case>, faults: &[Planted]) {
    check_with(with_kernels(cases), faults);
}

fn check_with(cases: Vec<(Case, Emitted)>, faults: &[Planted]) {
    let all: Vec<Trial> = faults.iter().enumerate().flat_map(|(number, fault)| trials(&cases, number, fault)).collect();
    for (number, fault) in faults.iter().enumerate() {
        assert!(all.iter().any(|trial| trial.fault == number), "no {} has {:?} to be changed", fault.kernel, fault.from);
    }
    let program = emit::program(all.iter().flat_map(|trial| &trial.run.emitted.kernels));
    let mut missed = Vec::new();
    let mut look = |engine: &str, finds: &mut dyn FnMut(&Planted, &Run) -> Result<(), String>| {
        for (number, fault) in faults.iter().enumerate() {
            let tried: Vec<_> = all.iter().filter(|trial| trial.fault == number).map(|trial| finds(fault, &trial.run)).collect();
            if tried.iter().all(Result::is_err) {
                missed.push(format!("{engine}, {}: {:?} -> {:?}: {:?}", fault.kernel, fault.from, fault.to, tried));
            }
        }
    };
    match Host::find() {
        None => eprintln!("skipped: there is no C compiler to compile kernels for the processor with"),
        Some(host) if !host.checks_bounds() => eprintln!("skipped: the C compiler has no sanitizers to check bounds with"),
        Some(host) => {
            let compiled = host.compile(&program).unwrap_or_else(|error| panic!("{error}"));
            look("the processor", &mut |fault, run| {
                if !fault.shows || shows_on_the_host(&compiled, run) { Ok(()) } else { Err(run.name.clone()) }
            });
        }
    }
    match Nvrtc::find() {
        None => eprintln!("skipped: NVRTC is not installed (PLIMSOLL_CUDA_LIBS names its folder), so no PTX is interpreted"),
        Some(nvrtc) => {
            let ptx = nvrtc.ptx(&program, "compute_90", emit::OPTIONS).unwrap_or_else(|error| panic!("{error}"));
            let module = Module::parse(&ptx).unwrap_or_else(|error| panic!("{error}"));
            look("PTX", &mut |fault, run| match said_of(&module, run) {
                Some(said) if fault.said.iter().any(|word| said.contains(word)) => Ok(()),
                said => Err(format!("{said:?} of {}", run.name)),
            });
        }
    }
    assert!(missed.is_empty(), "{} of {} are not found:\n{}", missed.len(), faults.len(), missed.join("\n"));
}

#[test]
fn faults_in_normalizations_are_found() {
    check([normalizing::norms(9), normalizing::behind_norms(15), normalizing::lrns(10)].into_iter().flatten().collect(), NORMS);
}

#[test]
fn faults_in_normalizations_by_sums_are_found() {
    check(normalizing::of_sums(21), OF_SUMS);
}

#[test]
fn faults_in_reductions_are_found() {
    check([cases::reductions(4), cases::rows(5)].into_iter().flatten().collect(), ROWS);
}

#[test]
fn faults_in_products_and_convolutions_are_found() {
    check([anchors::products(10), anchors::convolutions(12), anchors::depthwise(13)].into_iter().flatten().collect(), ANCHORS);
}

#[test]
fn faults_in_forms_are_found() {
    check_with(forms::forms(16), FORMS);
}

#[test]
fn faults_in_other_kernels_are_found() {
    let all = [expressions::of_groups(14), pooled::pools(6), cases::gathers(7), cases::movements(3), drawn::random(8)];
    let more = [drawn::keys(18), cases::targets(19), cases::resized(20), cases::conditions()];
    let all = all.into_iter().chain(more);
    check(all.flatten().collect(), OTHERS);
}
