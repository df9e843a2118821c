/**
 * Every CUDA function that Holdfast calls, with its signature. The calls are built from these tables. So are the tests
 * that pass a value through every parameter and compare every signature with NVIDIA's headers.
 *
 * The names are the exported symbols: `cuMemAlloc_v2`, where a macro of the header allows `cuMemAlloc`.
 */

/**
 * How a value is passed to C. Pointers and handles are addresses: numbers below 2⁵³, which koffi passes twice as fast.
 */
export const foreignTypes = {
  u8: "uint8_t",
  i32: "int32_t",
  u32: "uint32_t",
  i64: "int64_t",
  u64: "uint64_t",
  f32: "float",
  f64: "double",
  address: "uint64_t",
  text: "const char *",
} as const;

export type ForeignType = keyof typeof foreignTypes;

/** "u64 size": the type, and the argument's name in messages. */
export type ForeignParameter = `${ForeignType} ${string}`;

/** A function's parameters. By default it returns a status, 0 for success. */
export type Signature =
  | readonly ForeignParameter[]
  | { readonly takes: readonly ForeignParameter[]; readonly returns: Exclude<ForeignResult, "status"> };

export type ForeignResult = "status" | "text" | "u64" | "address" | "nothing";

export type Signatures = Readonly<Record<string, Signature>>;

/** libcuda: the driver API. Parameters named `to…` are output addresses. */
export const cudaFunctions = {
  cuInit: ["u32 flags"],
  cuDriverGetVersion: ["address toVersion"],
  cuGetErrorName: ["i32 error", "address toText"],
  cuGetErrorString: ["i32 error", "address toText"],

  cuDeviceGetCount: ["address toCount"],
  cuDeviceGet: ["address toDevice", "i32 ordinal"],
  cuDeviceGetName: ["address toName", "i32 length", "i32 device"],
  cuDeviceGetUuid_v2: ["address toUuid", "i32 device"],
  cuDeviceTotalMem_v2: ["address toBytes", "i32 device"],
  cuDeviceGetAttribute: ["address toValue", "i32 attribute", "i32 device"],
  cuDevicePrimaryCtxRetain: ["address toContext", "i32 device"],
  cuDevicePrimaryCtxRelease_v2: ["i32 device"],
  cuCtxSetCurrent: ["address context"],
  cuCtxGetCurrent: ["address toContext"],

  cuMemGetInfo_v2: ["address toFree", "address toTotal"],
  cuMemGetAllocationGranularity: ["address toGranularity", "address properties", "i32 option"],
  cuMemAddressReserve: ["address toRange", "u64 size", "u64 alignment", "address near", "u64 flags"],
  cuMemAddressFree: ["address range", "u64 size"],
  cuMemCreate: ["address toHandle", "u64 size", "address properties", "u64 flags"],
  cuMemRelease: ["u64 handle"],
  cuMemMap: ["address range", "u64 size", "u64 offset", "u64 handle", "u64 flags"],
  cuMemUnmap: ["address range", "u64 size"],
  cuMemSetAccess: ["address range", "u64 size", "address descriptions", "u64 count"],
  cuMemAlloc_v2: ["address toMemory", "u64 size"],
  cuMemFree_v2: ["address memory"],
  cuMemHostAlloc: ["address toMemory", "u64 size", "u32 flags"],
  cuMemFreeHost: ["address memory"],

  cuMemcpyHtoDAsync_v2: ["address target", "address source", "u64 size", "address stream"],
  cuMemcpyDtoHAsync_v2: ["address target", "address source", "u64 size", "address stream"],
  cuMemcpyDtoDAsync_v2: ["address target", "address source", "u64 size", "address stream"],
  cuMemsetD8Async: ["address target", "u8 value", "u64 size", "address stream"],

  cuStreamCreateWithPriority: ["address toStream", "u32 flags", "i32 priority"],
  cuStreamDestroy_v2: ["address stream"],
  cuStreamQuery: ["address stream"],
  cuStreamSynchronize: ["address stream"],
  cuStreamWaitEvent: ["address stream", "address event", "u32 flags"],
  cuEventCreate: ["address toEvent", "u32 flags"],
  cuEventDestroy_v2: ["address event"],
  cuEventRecord: ["address event", "address stream"],
  cuEventQuery: ["address event"],
  cuEventSynchronize: ["address event"],
  // The second version came with CUDA 12.8 and takes the same arguments; drivers keep the first.
  cuEventElapsedTime: ["address toMs", "address start", "address end"],

  cuModuleLoadData: ["address toModule", "address image"],
  cuModuleUnload: ["address module"],
  cuModuleGetFunction: ["address toFunction", "address module", "text name"],
  cuFuncGetAttribute: ["address toValue", "i32 attribute", "address function"],
  cuFuncSetAttribute: ["address function", "i32 attribute", "i32 value"],
  cuLaunchKernel: [
    "address function",
    "u32 gridX",
    "u32 gridY",
    "u32 gridZ",
    "u32 blockX",
    "u32 blockY",
    "u32 blockZ",
    "u32 sharedBytes",
    "address stream",
    "address arguments",
    "address extra",
  ],
  cuLaunchKernelEx: ["address config", "address function", "address arguments", "address extra"],
  cuTensorMapEncodeTiled: [
    "address toMap",
    "i32 dtype",
    "u32 rank",
    "address memory",
    "address sizes",
    "address strides",
    "address box",
    "address elementStrides",
    "i32 interleave",
    "i32 swizzle",
    "i32 promotion",
    "i32 fill",
  ],

  cuStreamBeginCapture_v2: ["address stream", "i32 mode"],
  cuStreamEndCapture: ["address stream", "address toGraph"],
  cuStreamIsCapturing: ["address stream", "address toStatus"],
  // The third version came with CUDA 12.3 and also reports edges; drivers keep the second.
  cuStreamGetCaptureInfo_v2: [
    "address stream",
    "address toStatus",
    "address toId",
    "address toGraph",
    "address toDependencies",
    "address toCount",
  ],
  cuThreadExchangeStreamCaptureMode: ["address mode"],
  cuGraphGetNodes: ["address graph", "address toNodes", "address count"],
  cuGraphNodeGetType: ["address node", "address toType"],
  cuGraphInstantiateWithFlags: ["address toExecutable", "address graph", "u64 flags"],
  cuGraphUpload: ["address executable", "address stream"],
  cuGraphLaunch: ["address executable", "address stream"],
  cuGraphExecDestroy: ["address executable"],
  cuGraphDestroy: ["address graph"],
} as const satisfies Signatures;

/** NVRTC: the CUDA C++ compiler. */
export const nvrtcFunctions = {
  nvrtcVersion: ["address toMajor", "address toMinor"],
  nvrtcGetErrorString: { takes: ["i32 status"], returns: "text" },
  nvrtcCreateProgram: [
    "address toProgram",
    "text source",
    "text name",
    "i32 headers",
    "address headerSources",
    "address headerNames",
  ],
  nvrtcDestroyProgram: ["address program"],
  nvrtcCompileProgram: ["address program", "i32 count", "address options"],
  nvrtcGetCUBINSize: ["address program", "address toSize"],
  nvrtcGetCUBIN: ["address program", "address toCubin"],
  nvrtcGetProgramLogSize: ["address program", "address toSize"],
  nvrtcGetProgramLog: ["address program", "address toLog"],
} as const satisfies Signatures;

/** cuBLASLt: GEMMs. */
export const cublasLtFunctions = {
  cublasLtGetVersion: { takes: [], returns: "u64" },
  cublasLtGetStatusName: { takes: ["i32 status"], returns: "text" },
  cublasLtGetStatusString: { takes: ["i32 status"], returns: "text" },
  cublasLtCreate: ["address toHandle"],
  cublasLtDestroy: ["address handle"],
  cublasLtMatmulDescCreate: ["address toDescription", "i32 computeType", "i32 scaleType"],
  cublasLtMatmulDescDestroy: ["address description"],
  cublasLtMatmulDescSetAttribute: ["address description", "i32 attribute", "address value", "u64 size"],
  cublasLtMatrixLayoutCreate: ["address toLayout", "i32 type", "u64 rows", "u64 columns", "i64 leading"],
  cublasLtMatrixLayoutDestroy: ["address layout"],
  cublasLtMatrixLayoutSetAttribute: ["address layout", "i32 attribute", "address value", "u64 size"],
  cublasLtMatmulPreferenceCreate: ["address toPreference"],
  cublasLtMatmulPreferenceDestroy: ["address preference"],
  cublasLtMatmulPreferenceSetAttribute: ["address preference", "i32 attribute", "address value", "u64 size"],
  cublasLtMatmulAlgoGetHeuristic: [
    "address handle",
    "address description",
    "address aLayout",
    "address bLayout",
    "address cLayout",
    "address dLayout",
    "address preference",
    "i32 requested",
    "address toResults",
    "address toCount",
  ],
  cublasLtMatmulAlgoConfigGetAttribute: [
    "address algorithm",
    "i32 attribute",
    "address toValue",
    "u64 size",
    "address toWritten",
  ],
  cublasLtMatmulAlgoCapGetAttribute: [
    "address algorithm",
    "i32 attribute",
    "address toValue",
    "u64 size",
    "address toWritten",
  ],
  cublasLtMatmul: [
    "address handle",
    "address description",
    "address alpha",
    "address a",
    "address aLayout",
    "address b",
    "address bLayout",
    "address beta",
    "address c",
    "address cLayout",
    "address d",
    "address dLayout",
    "address algorithm",
    "address workspace",
    "u64 workspaceBytes",
    "address stream",
  ],
} as const satisfies Signatures;

/** NVTX: reports memory to checking tools. Without a tool these calls do nothing. */
export const nvtxFunctions = {
  nvtxDomainCreateA: { takes: ["text name"], returns: "address" },
  nvtxDomainDestroy: { takes: ["address domain"], returns: "nothing" },
  nvtxMemHeapRegister: { takes: ["address domain", "address description"], returns: "address" },
  nvtxMemHeapUnregister: { takes: ["address domain", "address heap"], returns: "nothing" },
  nvtxMemRegionsRegister: { takes: ["address domain", "address batch"], returns: "nothing" },
  nvtxMemRegionsUnregister: { takes: ["address domain", "address batch"], returns: "nothing" },
} as const satisfies Signatures;

export function listParameters(signature: Signature): readonly ForeignParameter[] {
  return "takes" in signature ? signature.takes : signature;
}

export function resultType(signature: Signature): ForeignResult {
  return "takes" in signature ? signature.returns : "status";
}

/** Splits a parameter into its type and name. */
export function splitParameter(parameter: ForeignParameter): { type: ForeignType; name: string } {
  const [type, name] = parameter.split(" ") as [ForeignType, string];
  return { type, name };
}
