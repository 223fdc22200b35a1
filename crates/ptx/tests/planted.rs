//! Faults that are planted in kernels are found, whichever way a kernel is run; what has none runs.

use plimsoll_ptx::{Host, Job, Launch, Module, Nvrtc, Value};

/// What the kernels below use.
const PRELUDE: &str = r#"
typedef unsigned int u32; typedef unsigned long long u64; typedef float f32;
#ifdef __cplusplus
#define KERNEL extern "C" __global__ void
#else
#define KERNEL void
#endif
#define BOUNDS __launch_bounds__(64)
"#;

/// Sums of 64 elements by a tree.
const SUM: &str = "
KERNEL BOUNDS sum(const f32* p, f32* q) {
  __shared__ f32 tree[64];
  tree[threadIdx.x] = p[blockIdx.x * 64 + threadIdx.x];
  for (u32 half = 32; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) tree[threadIdx.x] += tree[threadIdx.x + half];
  }
  if (threadIdx.x == 0) q[blockIdx.x] = tree[0];
}
";

/// The same as the compiler prints it, cut to what is needed: a tree of two steps over four threads.
const SUM_PTX: &str = r"
.version 9.0
.target sm_90
.address_size 64
.visible .entry sum(
	.param .u64 sum_param_0,
	.param .u64 sum_param_1
)
{
	.reg .pred 	%p<4>;
	.reg .f32 	%f<8>;
	.reg .b32 	%r<8>;
	.reg .b64 	%rd<8>;
	.shared .align 4 .b8 tree[16];
	ld.param.u64 	%rd1, [sum_param_0];
	ld.param.u64 	%rd2, [sum_param_1];
	mov.u32 	%r1, %tid.x;
	mul.wide.u32 	%rd3, %r1, 4;
	add.s64 	%rd4, %rd1, %rd3;
	ld.global.f32 	%f1, [%rd4];
	mov.u32 	%r2, tree;
	shl.b32 	%r3, %r1, 2;
	add.s32 	%r4, %r2, %r3;
	st.shared.f32 	[%r4], %f1;
	bar.sync 	0;
	setp.gt.u32 	%p1, %r1, 1;
	@%p1 bra 	$L1;
	ld.shared.f32 	%f2, [%r4+8];
	add.rn.f32 	%f3, %f1, %f2;
	st.shared.f32 	[%r4], %f3;
$L1:
	bar.sync 	0;
	setp.ne.s32 	%p2, %r1, 0;
	@%p2 bra 	$L2;
	ld.shared.v2.f32 	{%f4, %f5}, [tree];
	add.rn.f32 	%f6, %f4, %f5;
	st.global.f32 	[%rd2], %f6;
$L2:
	ret;
}
";

fn job(threads: u32, blocks: u32, input: usize, output: usize) -> Job {
    Job {
        launches: vec![Launch { entry: "sum".into(), blocks, threads, args: vec![Value::Buffer(0), Value::Buffer(1)] }],
        buffers: vec![(0..input).flat_map(|at| (at as f32).to_le_bytes()).collect(), vec![0; output * 4]],
        written: vec![true, false],
    }
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks(4).map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap())).collect()
}

fn interpreted(ptx: &str, mut job: Job) -> Result<Vec<f32>, String> {
    Module::parse(ptx)?.run(&mut job)?;
    Ok(floats(&job.buffers[1]))
}

#[test]
fn ptx_without_faults_runs() {
    assert_eq!(interpreted(SUM_PTX, job(4, 1, 4, 1)), Ok(vec![6.0]));
    assert_eq!(Module::parse(SUM_PTX).unwrap().instructions("sum"), Some(23));
}

#[test]
fn faults_in_ptx_are_found() {
    let found = |from: &str, to: &str, text: &str| {
        let changed = SUM_PTX.replacen(from, to, 1);
        assert_ne!(changed, SUM_PTX);
        let error = interpreted(&changed, job(4, 1, 4, 1)).unwrap_err();
        assert!(error.contains(text), "{from} -> {to}: {error}");
    };
    found("\tbar.sync \t0;\n", "", "race: thread 2 of block 0 wrote this");
    found("st.shared.f32 \t[%r4], %f1;", "", "reads what was never written");
    // Behind the first barrier the second is what orders writes and reads.
    found("$L1:\n\tbar.sync \t0;\n", "$L1:\n", "race");
    found("@%p1 bra \t$L1", "@%p1 bra \t$L2", "divergent barrier: 2 of 4 threads");
    found("[%rd2], %f6", "[%rd2+4], %f6", "out of bounds: bytes 4..8 of buffer 1 of 4");
    found("[%rd2], %f6", "[%rd2+2], %f6", "misaligned by 2");
    found("[%rd2], %f6", "[%rd2+-4], %f6", "out of bounds");
    found("ld.global.f32 \t%f1, [%rd4]", "ld.global.f32 \t%f1, [%rd2]", "reads what was never written");
    found("[%r4+8]", "[%r4+12]", "out of bounds: byte 16 of 16 shared ones");
    found("st.shared.f32 \t[%r4], %f1;", "st.shared.f32 \t[tree], %f1;", "race: thread 0 of block 0 wrote this");
    found("setp.ne.s32", "setp.huh.s32", "not known: setp.huh.s32");
    found("tid.x", "laneid", "not known: %laneid");
    // Two blocks that write one place, and an argument that ends before its last element.
    assert!(interpreted(SUM_PTX, job(4, 2, 4, 1)).unwrap_err().contains("race: thread 0 of block 0 wrote this"));
    assert!(interpreted(SUM_PTX, job(4, 1, 3, 1)).unwrap_err().contains("out of bounds: bytes 12..16 of buffer 0 of 12"));
}

/// Each fault, as a change of the kernel, and what is said of it in PTX and on the processor.
const PLANTED: [(&str, &str, [&str; 2]); 5] = [
    ("    __syncthreads();\n", "", ["race"; 2]),
    ("tree[threadIdx.x + half]", "tree[threadIdx.x + 1]", ["race"; 2]),
    ("if (threadIdx.x < half)", "if (threadIdx.x <= half)", ["out of bounds: byte 256 of 256 shared ones", "global-buffer-overflow"]),
    ("p[blockIdx.x * 64 + threadIdx.x]", "p[blockIdx.x * 64 + threadIdx.x + 1]", ["out of bounds: bytes 512..516", "heap-buffer-overflow"]),
    ("    __syncthreads();\n    if (threadIdx.x < half) ", "    if (threadIdx.x < 16) return; __syncthreads(); ", ["divergent barrier"; 2]),
];

#[test]
fn faults_are_found_in_what_the_compiler_makes() {
    let Some(nvrtc) = Nvrtc::find() else {
        eprintln!("skipped: NVRTC is not installed (PLIMSOLL_CUDA_LIBS names its folder)");
        return;
    };
    let ptx = |text: &str| nvrtc.ptx(&format!("{PRELUDE}{text}"), "compute_90", &["-w"]).unwrap();
    assert_eq!(interpreted(&ptx(SUM), job(64, 2, 128, 2)), Ok(vec![2016.0, 6112.0]));
    for (from, to, [expected, _]) in PLANTED {
        let changed = SUM.replace(from, to);
        assert_ne!(changed, SUM);
        let error = interpreted(&ptx(&changed), job(64, 2, 128, 2)).unwrap_err();
        assert!(error.contains(expected), "{from} -> {to}: {error}");
    }
    let (cubin, log) = nvrtc.cubin(&format!("{PRELUDE}{SUM}"), "sm_90", &["--ptxas-options=-v"]).unwrap();
    assert!(cubin.starts_with(b"\x7fELF") && log.contains("registers"), "{log}");
    assert!(nvrtc.ptx("no kernel", "compute_90", &[]).unwrap_err().contains("error"));
}

#[test]
fn faults_are_found_on_the_processor() {
    let Some(host) = Host::find() else {
        eprintln!("skipped: there is no C compiler");
        return;
    };
    // The same bytes whatever the order of the threads, or there is a race.
    let run = |text: &str| -> Result<Vec<f32>, String> {
        let program = host.compile(&format!("{PRELUDE}{text}"))?;
        let mut jobs = [vec![job(64, 2, 128, 2)], vec![job(64, 2, 128, 2)]];
        program.run(&mut jobs[0], false)?;
        program.run(&mut jobs[1], true)?;
        let [first, second] = jobs.map(|jobs| floats(&jobs[0].buffers[1]));
        if first == second { Ok(first) } else { Err(format!("race: {first:?} and {second:?}")) }
    };
    assert_eq!(run(SUM), Ok(vec![2016.0, 6112.0]));
    for (from, to, [_, expected]) in PLANTED {
        if expected.ends_with("overflow") && !host.checks_bounds() {
            eprintln!("skipped: the C compiler has no sanitizers");
            continue;
        }
        let error = run(&SUM.replace(from, to));
        assert!(error.as_ref().is_err_and(|error| error.contains(expected)), "{from} -> {to}: {error:?}");
    }
    assert!(host.compile("KERNEL huh").is_err());
    let program = host.compile(&format!("{PRELUDE}{SUM}")).unwrap();
    let mut unknown = job(64, 1, 64, 1);
    unknown.launches[0].entry = "other".into();
    assert!(program.run(&mut [unknown], false).unwrap_err().contains("no kernel is called other"));
}
