/**
 * The CUDA constants in use. A record holds one enumeration, without the prefix of its names. `constantGroups` has the
 * prefixes, for the test that compares every number with the headers.
 */

// libcuda

export const cudaStatus = {
  SUCCESS: 0,
  ERROR_INVALID_VALUE: 1,
  ERROR_OUT_OF_MEMORY: 2,
  ERROR_NOT_INITIALIZED: 3,
  ERROR_DEINITIALIZED: 4,
  ERROR_STUB_LIBRARY: 34,
  ERROR_CALL_REQUIRES_NEWER_DRIVER: 36,
  ERROR_DEVICE_UNAVAILABLE: 46,
  ERROR_NO_DEVICE: 100,
  ERROR_INVALID_DEVICE: 101,
  ERROR_INVALID_IMAGE: 200,
  ERROR_INVALID_CONTEXT: 201,
  ERROR_NO_BINARY_FOR_GPU: 209,
  ERROR_ECC_UNCORRECTABLE: 214,
  ERROR_NVLINK_UNCORRECTABLE: 220,
  ERROR_INVALID_HANDLE: 400,
  ERROR_NOT_FOUND: 500,
  ERROR_NOT_READY: 600,
  ERROR_ILLEGAL_ADDRESS: 700,
  ERROR_LAUNCH_OUT_OF_RESOURCES: 701,
  ERROR_LAUNCH_TIMEOUT: 702,
  ERROR_CONTEXT_IS_DESTROYED: 709,
  ERROR_ASSERT: 710,
  ERROR_HARDWARE_STACK_ERROR: 714,
  ERROR_ILLEGAL_INSTRUCTION: 715,
  ERROR_MISALIGNED_ADDRESS: 716,
  ERROR_INVALID_ADDRESS_SPACE: 717,
  ERROR_INVALID_PC: 718,
  ERROR_LAUNCH_FAILED: 719,
  ERROR_NOT_PERMITTED: 800,
  ERROR_NOT_SUPPORTED: 801,
  ERROR_SYSTEM_NOT_READY: 802,
  ERROR_SYSTEM_DRIVER_MISMATCH: 803,
  ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE: 804,
  ERROR_STREAM_CAPTURE_UNSUPPORTED: 900,
  ERROR_STREAM_CAPTURE_INVALIDATED: 901,
  ERROR_STREAM_CAPTURE_MERGE: 902,
  ERROR_STREAM_CAPTURE_UNMATCHED: 903,
  ERROR_STREAM_CAPTURE_UNJOINED: 904,
  ERROR_STREAM_CAPTURE_ISOLATION: 905,
  ERROR_STREAM_CAPTURE_IMPLICIT: 906,
  ERROR_CAPTURED_EVENT: 907,
  ERROR_STREAM_CAPTURE_WRONG_THREAD: 908,
  ERROR_UNKNOWN: 999,
} as const;

export const deviceAttribute = {
  MAX_THREADS_PER_BLOCK: 1,
  MAX_GRID_DIM_X: 5,
  MAX_SHARED_MEMORY_PER_BLOCK: 8,
  WARP_SIZE: 10,
  MULTIPROCESSOR_COUNT: 16,
  INTEGRATED: 18,
  L2_CACHE_SIZE: 38,
  COMPUTE_CAPABILITY_MAJOR: 75,
  COMPUTE_CAPABILITY_MINOR: 76,
  MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: 97,
  VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED: 102,
} as const;

export const memoryAllocationType = { PINNED: 1 } as const;
export const memoryHandleType = { NONE: 0 } as const;
export const memoryLocationType = { DEVICE: 1 } as const;
export const memoryAccess = { READWRITE: 3 } as const;
export const memoryGranularity = { MINIMUM: 0, RECOMMENDED: 1 } as const;
export const hostAllocation = { PORTABLE: 1 } as const;

export const streamFlag = {
  DEFAULT: 0,
  NON_BLOCKING: 1,
} as const;

/** Lower runs sooner; CUDA clamps to the device's range. */
export const streamPriority = { high: -5, normal: 0 } as const;

/** Programmatic dependent launch: a kernel may start during the tail of its predecessor on the stream. */
export const launchAttribute = { PROGRAMMATIC_STREAM_SERIALIZATION: 6 } as const;

export const eventFlag = {
  DEFAULT: 0,
  BLOCKING_SYNC: 1,
  DISABLE_TIMING: 2,
} as const;

/** The relaxed mode is left out on purpose: it permits calls that a capture forbids. */
export const captureMode = {
  GLOBAL: 0,
  THREAD_LOCAL: 1,
} as const;

export const captureStatus = {
  NONE: 0,
  ACTIVE: 1,
  INVALIDATED: 2,
} as const;

/** Kernels of a graph keep the priorities of the streams that they were captured from. */
export const instantiateFlag = { USE_NODE_PRIORITY: 8 } as const;

export const graphNodeType = {
  KERNEL: 0,
  MEMCPY: 1,
  MEMSET: 2,
  HOST: 3,
  GRAPH: 4,
  EMPTY: 5,
  WAIT_EVENT: 6,
  EVENT_RECORD: 7,
  EXT_SEMAS_SIGNAL: 8,
  EXT_SEMAS_WAIT: 9,
  MEM_ALLOC: 10,
  MEM_FREE: 11,
  BATCH_MEM_OP: 12,
  CONDITIONAL: 13,
} as const;

export const functionAttribute = {
  MAX_THREADS_PER_BLOCK: 0,
  SHARED_SIZE_BYTES: 1,
  LOCAL_SIZE_BYTES: 3,
  NUM_REGS: 4,
  MAX_DYNAMIC_SHARED_SIZE_BYTES: 8,
} as const;

/** Tensor maps: element type, interleaving of 16-byte units, and the value of elements outside the tensor. */
export const mapDataType = { FLOAT16: 6, FLOAT32: 7, BFLOAT16: 9, TFLOAT32: 11 } as const;
export const mapInterleave = { NONE: 0 } as const;
export const mapSwizzle = { "128B": 3 } as const;
export const mapPromotion = { L2_256B: 3 } as const;
/** Out-of-bounds elements are 0 by default. */
export const mapFill = { NONE: 0 } as const;

// NVRTC

export const nvrtcStatus = {
  SUCCESS: 0,
  ERROR_OUT_OF_MEMORY: 1,
  ERROR_INVALID_OPTION: 5,
  ERROR_COMPILATION: 6,
  ERROR_BUILTIN_OPERATION_FAILURE: 7,
} as const;

// cuBLASLt. The comment after an attribute is the type of its value.

export const cublasStatus = {
  SUCCESS: 0,
  NOT_INITIALIZED: 1,
  ALLOC_FAILED: 3,
  INVALID_VALUE: 7,
  ARCH_MISMATCH: 8,
  MAPPING_ERROR: 11,
  EXECUTION_FAILED: 13,
  INTERNAL_ERROR: 14,
  NOT_SUPPORTED: 15,
} as const;

/** `cudaDataType`: the element type of a matrix, a bias or a scale. */
export const dataType = {
  R_32F: 0,
  R_64F: 1,
  R_16F: 2,
  R_16BF: 14,
} as const;

/** The fast ones round f32 operands on load; accumulation is f32. */
export const computeType = {
  "32F": 68,
  "32F_PEDANTIC": 69,
  "64F": 70,
  "32F_FAST_16BF": 75,
  "32F_FAST_TF32": 77,
} as const;

export const blasOperation = {
  N: 0,
  T: 1,
} as const;

export const matrixOrder = {
  COL: 0,
  ROW: 1,
} as const;

export const layoutAttribute = {
  TYPE: 0, // u32
  ORDER: 1, // i32
  ROWS: 2, // u64
  COLS: 3, // u64
  LD: 4, // i64
  BATCH_COUNT: 5, // i32
  STRIDED_BATCH_OFFSET: 6, // i64, in elements
} as const;

export const matmulAttribute = {
  COMPUTE_TYPE: 0, // i32
  SCALE_TYPE: 1, // i32
  POINTER_MODE: 2, // i32
  TRANSA: 3, // i32
  TRANSB: 4, // i32
  EPILOGUE: 7, // u32
  BIAS_POINTER: 8, // address
  BIAS_BATCH_STRIDE: 10, // i64
  SM_COUNT_TARGET: 15, // i32
  BIAS_DATA_TYPE: 26, // i32
} as const;

export const preferenceAttribute = {
  SEARCH_MODE: 0, // u32
  MAX_WORKSPACE_BYTES: 1, // u64
  REDUCTION_SCHEME_MASK: 3, // u32
  MIN_ALIGNMENT_A_BYTES: 5, // u32
  MIN_ALIGNMENT_B_BYTES: 6, // u32
  MIN_ALIGNMENT_C_BYTES: 7, // u32
  MIN_ALIGNMENT_D_BYTES: 8, // u32
  MAX_WAVES_COUNT: 9, // f32
  IMPL_MASK: 12, // u64, of numericalFlag
} as const;

/** How the partial sums of a split-K GEMM are combined. A mask says which schemes are allowed. */
export const reductionScheme = {
  NONE: 0,
  INPLACE: 1,
  COMPUTE_TYPE: 2,
  OUTPUT_TYPE: 4,
  MASK: 7,
} as const;

/** GELU is the tanh approximation. */
export const epilogue = {
  DEFAULT: 1,
  RELU: 2,
  BIAS: 4,
  RELU_BIAS: 6,
  GELU: 32,
  GELU_BIAS: 36,
} as const;

export const algorithmConfig = {
  ID: 0, // i32
  TILE_ID: 1, // u32
  SPLITK_NUM: 2, // i32
  REDUCTION_SCHEME: 3, // u32
  CTA_SWIZZLING: 4, // u32
  CUSTOM_OPTION: 5, // u32
  STAGES_ID: 6, // u32
  INNER_SHAPE_ID: 7, // u16
  CLUSTER_SHAPE_ID: 8, // u16
} as const;

export const algorithmCapability = {
  SPLITK_SUPPORT: 0, // i32
  REDUCTION_SCHEME_MASK: 1, // u32
  STRIDED_BATCH_SUPPORT: 3, // i32
  EPILOGUE_MASK: 12, // u32
  NUMERICAL_IMPL_FLAGS: 15, // u64, of numericalFlag
  MIN_ALIGNMENT_A_BYTES: 16, // u32
  MIN_ALIGNMENT_B_BYTES: 17, // u32
  MIN_ALIGNMENT_C_BYTES: 18, // u32
  MIN_ALIGNMENT_D_BYTES: 19, // u32
} as const;

/** The instructions, accumulators and inputs of an algorithm, which determine the bits of its result. */
export const numericalFlag = {
  FMA: 0x01,
  HMMA: 0x02,
  DMMA: 0x08,
  TENSOR_OP_MASK: 0xfe,
  ACCUMULATOR_16F: 0x0100,
  ACCUMULATOR_32F: 0x0200,
  ACCUMULATOR_64F: 0x0400,
  INPUT_16F: 0x01_0000,
  INPUT_16BF: 0x02_0000,
  INPUT_TF32: 0x04_0000,
  INPUT_32F: 0x08_0000,
  INPUT_64F: 0x10_0000,
} as const;

// NVTX

/** The version of NVTX's memory structs. */
export const memoryExtension = { COMPATID_MEM: 0x0102 } as const;
export const memoryPoolUsage = { SUB_ALLOCATOR: 1 } as const;
export const memoryType = { VIRTUAL_ADDRESS: 1 } as const;
export const memoryReference = { POINTER: 1 } as const;

/** By header, then by the prefix of an enumeration's names. */
export const constantGroups = {
  "cuda.h": {
    CUDA_: cudaStatus,
    CU_DEVICE_ATTRIBUTE_: deviceAttribute,
    CU_MEM_ALLOCATION_TYPE_: memoryAllocationType,
    CU_MEM_HANDLE_TYPE_: memoryHandleType,
    CU_MEM_LOCATION_TYPE_: memoryLocationType,
    CU_MEM_ACCESS_FLAGS_PROT_: memoryAccess,
    CU_MEM_ALLOC_GRANULARITY_: memoryGranularity,
    CU_MEMHOSTALLOC_: hostAllocation,
    CU_STREAM_: streamFlag,
    CU_EVENT_: eventFlag,
    CU_LAUNCH_ATTRIBUTE_: launchAttribute,
    CU_STREAM_CAPTURE_MODE_: captureMode,
    CU_STREAM_CAPTURE_STATUS_: captureStatus,
    CU_GRAPH_NODE_TYPE_: graphNodeType,
    CUDA_GRAPH_INSTANTIATE_FLAG_: instantiateFlag,
    CU_FUNC_ATTRIBUTE_: functionAttribute,
    CU_TENSOR_MAP_DATA_TYPE_: mapDataType,
    CU_TENSOR_MAP_INTERLEAVE_: mapInterleave,
    CU_TENSOR_MAP_SWIZZLE_: mapSwizzle,
    CU_TENSOR_MAP_L2_PROMOTION_: mapPromotion,
    CU_TENSOR_MAP_FLOAT_OOB_FILL_: mapFill,
  },
  "library_types.h": { CUDA_: dataType },
  "nvrtc.h": { NVRTC_: nvrtcStatus },
  "cublasLt.h": {
    CUBLAS_STATUS_: cublasStatus,
    CUBLAS_COMPUTE_: computeType,
    CUBLAS_OP_: blasOperation,
    CUBLASLT_ORDER_: matrixOrder,
    CUBLASLT_MATRIX_LAYOUT_: layoutAttribute,
    CUBLASLT_MATMUL_DESC_: matmulAttribute,
    CUBLASLT_MATMUL_PREF_: preferenceAttribute,
    CUBLASLT_REDUCTION_SCHEME_: reductionScheme,
    CUBLASLT_EPILOGUE_: epilogue,
    CUBLASLT_ALGO_CONFIG_: algorithmConfig,
    CUBLASLT_ALGO_CAP_: algorithmCapability,
    CUBLASLT_NUMERICAL_IMPL_FLAGS_: numericalFlag,
  },
  "nvtx3/nvToolsExtMem.h": {
    NVTX_EXT_: memoryExtension,
    NVTX_MEM_HEAP_USAGE_TYPE_: memoryPoolUsage,
    NVTX_MEM_TYPE_: memoryType,
    NVTX_MEM_REGION_REF_TYPE_: memoryReference,
  },
} as const satisfies Readonly<Record<string, Readonly<Record<string, Readonly<Record<string, number>>>>>>;
