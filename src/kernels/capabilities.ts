/** What a backend can do, each capability named by its meaning, so that no caller has to ask for the kind of device. */

export interface Capabilities {
  /** Independent calls run at the same time on several streams, so a step with fewer dependencies is shorter. */
  readonly hasStreams: boolean;
  /** One launch can run several independent kernels. It pays where a launch costs as much as a small kernel. */
  readonly combinesKernels: boolean;
  /** A row kernel can also store partial sums of its columns. */
  readonly sumsColumnsInRowKernels: boolean;
  /** The bits of a row's sum depend on the row's length alone, and not on the kernel's other operands. */
  readonly reducesRowsByLengthAlone: boolean;
  /** Threads share one column of a reduction, so that few columns can keep the device busy. */
  readonly splitsColumns: boolean;
  /** A column kernel can store its outputs at equal steps instead of contiguously. */
  readonly storesStridedColumns: boolean;
  /** GEMMs take f16 and bf16 operands, and accumulate in f32. Settings may round f32 operands to bf16 or TF32. */
  readonly multipliesHalfFloats: boolean;
  /** GEMMs add a bias in their epilogue. */
  readonly fusesBias: boolean;
  /** GEMMs read misaligned rows so slowly that an aligned copy pays. */
  readonly needsAlignedRows: boolean;
  /** GEMMs with one very small dimension run faster as row or column kernels. */
  readonly lowersSkinnyGemms: boolean;
  /** A GEMM's algorithm may follow from where its operands lie, and there are several to choose from by measurement. */
  readonly autotunesGemms: boolean;
  /** Attention reads and stores half floats. */
  readonly storesHalfAttention: boolean;
  /** Memory is so plentiful, against compute, that a step keeps values first and recomputes them only if it must. */
  readonly prefersMemoryOverRecompute: boolean;
  /** A launch is shorter than the host's clock can tell, so that launches are timed in graphs. */
  readonly timesLaunchesInGraphs: boolean;
}

export const wasmCapabilities: Capabilities = {
  hasStreams: false,
  combinesKernels: false,
  sumsColumnsInRowKernels: false,
  reducesRowsByLengthAlone: false,
  splitsColumns: false,
  storesStridedColumns: false,
  multipliesHalfFloats: false,
  fusesBias: false,
  needsAlignedRows: false,
  lowersSkinnyGemms: false,
  autotunesGemms: false,
  storesHalfAttention: false,
  prefersMemoryOverRecompute: false,
  timesLaunchesInGraphs: false,
};

export const cudaCapabilities: Capabilities = {
  hasStreams: true,
  combinesKernels: true,
  sumsColumnsInRowKernels: true,
  reducesRowsByLengthAlone: true,
  splitsColumns: true,
  storesStridedColumns: true,
  multipliesHalfFloats: true,
  fusesBias: true,
  needsAlignedRows: true,
  lowersSkinnyGemms: true,
  autotunesGemms: true,
  storesHalfAttention: true,
  prefersMemoryOverRecompute: true,
  timesLaunchesInGraphs: true,
};
