/** The capabilities of a backend. Callers ask for a capability, not for the kind of device. */

export interface Capabilities {
  /** Independent calls can run at the same time on several streams. A step with fewer dependencies is then shorter. */
  readonly hasStreams: boolean;
  /** One launch can run several independent kernels. This pays off if a launch costs as much as a small kernel. */
  readonly combinesKernels: boolean;
  /** A row kernel can also store partial sums of its columns. */
  readonly sumsColumnsInRowKernels: boolean;
  /** The bits of a row's sum depend only on the row's length, not on the kernel's other operands. */
  readonly reducesRowsByLengthAlone: boolean;
  /** The stages of an elementwise kernel are one loop body: it computes a value once, however many stages use it. */
  readonly sharesValuesOfStages: boolean;
  /** Several threads share one column of a reduction, so that few columns can keep the device busy. */
  readonly splitsColumns: boolean;
  /** A column kernel can store its outputs with a stride. */
  readonly storesStridedColumns: boolean;
  /** A column kernel reduces runs of columns that are apart in memory, and reads values that groups of columns share. */
  readonly reducesColumnRuns: boolean;
  /** GEMMs take f16 and bf16 operands, and accumulate in f32. Settings may round f32 operands to bf16 or TF32. */
  readonly multipliesHalfFloats: boolean;
  /** GEMMs add a bias in their epilogue. */
  readonly fusesBias: boolean;
  /** GEMMs read unaligned rows so slowly that an aligned copy pays off. */
  readonly needsAlignedRows: boolean;
  /** GEMMs with one very small dimension run faster as row or column kernels. */
  readonly lowersSkinnyGemms: boolean;
  /** A GEMM has several algorithms, which are selected by measurement. Which ones are valid may depend on the alignment of operands. */
  readonly autotunesGemms: boolean;
  /** Attention reads and stores half floats. */
  readonly storesHalfAttention: boolean;
  /** Convolutions gather patches of their input while they multiply. Without it, patches are copied to memory for a GEMM. */
  readonly gathersConvolutions: boolean;
  /** Row kernels compute the numbers of a draw themselves. Without it, a mask in memory has one byte for each. */
  readonly drawsInKernels: boolean;
  /** Sparse rows can be stored compactly, and read through a row map. */
  readonly hasCompactRows: boolean;
  /** A step keeps values in memory, and rematerialises them only if memory does not suffice. */
  readonly prefersMemoryOverRecompute: boolean;
  /** Launches are too short for the host's clock, so that they are timed in graphs. */
  readonly timesLaunchesInGraphs: boolean;
  /** Kernels can be functions of this process, in JavaScript. */
  readonly runsHostKernels: boolean;
}

export const wasmCapabilities: Capabilities = {
  hasStreams: false,
  combinesKernels: false,
  sumsColumnsInRowKernels: false,
  reducesRowsByLengthAlone: false,
  sharesValuesOfStages: false,
  splitsColumns: false,
  storesStridedColumns: false,
  reducesColumnRuns: false,
  multipliesHalfFloats: false,
  fusesBias: false,
  needsAlignedRows: false,
  lowersSkinnyGemms: false,
  autotunesGemms: false,
  storesHalfAttention: false,
  gathersConvolutions: false,
  drawsInKernels: false,
  hasCompactRows: false,
  prefersMemoryOverRecompute: false,
  timesLaunchesInGraphs: false,
  runsHostKernels: true,
};

export const cudaCapabilities: Capabilities = {
  hasStreams: true,
  combinesKernels: true,
  sumsColumnsInRowKernels: true,
  reducesRowsByLengthAlone: true,
  sharesValuesOfStages: true,
  splitsColumns: true,
  storesStridedColumns: true,
  reducesColumnRuns: true,
  multipliesHalfFloats: true,
  fusesBias: true,
  needsAlignedRows: true,
  lowersSkinnyGemms: true,
  autotunesGemms: true,
  storesHalfAttention: true,
  gathersConvolutions: true,
  drawsInKernels: true,
  hasCompactRows: true,
  prefersMemoryOverRecompute: true,
  timesLaunchesInGraphs: true,
  runsHostKernels: false,
};
