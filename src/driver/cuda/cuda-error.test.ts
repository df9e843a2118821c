/** The error of a failed CUDA call: its name, its arguments, and the first failure. */

import assert from "node:assert/strict";
import test from "node:test";
import { cudaFunctions, listParameters, type Signatures } from "./bindings.js";
import { cudaStatus } from "./constants.js";
import { type CudaLibrary, type FailedCall, FailureLog, type ForeignValue } from "./cuda-error.js";

type Call = keyof typeof cudaFunctions;

function failed(call: Call, values: readonly ForeignValue[], status: keyof typeof cudaStatus): FailedCall {
  const signatures: Signatures = cudaFunctions;
  return {
    library: "cuda",
    call,
    parameters: listParameters(signatures[call] ?? []),
    values,
    status: cudaStatus[status],
    name: `CUDA_${status}`,
    text: "its text",
  };
}

function foreign(library: CudaLibrary, call: string, status: number, name = ""): FailedCall {
  return { library, call, parameters: ["address handle"], values: [16], status, name, text: "" };
}

/** Returns the error of a new failure. */
function tell(failures: FailureLog, failure: FailedCall): { code: string; message: string; numbers: object } {
  failures.note(failure.library, failure.status, () => failure);
  return failures.toError(failure);
}

const stream = 0x7f00;
const synchronize = failed("cuStreamSynchronize", [stream], "ERROR_ILLEGAL_ADDRESS");
const record = failed("cuEventRecord", [1, stream], "ERROR_ILLEGAL_ADDRESS");

test("the message has the call, its arguments by name, the status by name and number, and advice", () => {
  const failure = failed("cuMemMap", [0x7f1234000000, 2_097_152, 0, 77, 0], "ERROR_OUT_OF_MEMORY");
  const { code, message, numbers } = tell(new FailureLog(), failure);
  assert.equal(code, "OUT_OF_MEMORY");
  assert.equal(
    message,
    "cuMemMap(range 0x7f1234000000, size 2097152, offset 0, handle 77, flags 0) failed: CUDA_ERROR_OUT_OF_MEMORY (2), its text. Another process uses the device's memory; `nvidia-smi` lists it. Lower HOLDFAST_MEMORY or free the device.",
  );
  assert.deepEqual(numbers, { call: "cuMemMap", status: 2, name: "CUDA_ERROR_OUT_OF_MEMORY" });
});

test("a long text argument is truncated", () => {
  const { message } = tell(
    new FailureLog(),
    failed("cuModuleGetFunction", [1, 2, `hf_${"x".repeat(100)}`], "ERROR_NOT_FOUND"),
  );
  assert.match(message, /module 0x2, name "hf_x{37}…"\) failed/);
});

const codes = {
  ERROR_OUT_OF_MEMORY: "OUT_OF_MEMORY",
  ERROR_INVALID_VALUE: "DRIVER_FAILED",
  ERROR_ILLEGAL_ADDRESS: "DRIVER_FAILED",
  ERROR_NO_DEVICE: "NO_CUDA",
  ERROR_STUB_LIBRARY: "NO_CUDA",
  ERROR_SYSTEM_DRIVER_MISMATCH: "NO_CUDA",
  ERROR_STREAM_CAPTURE_UNSUPPORTED: "CAPTURE_REJECTED",
  ERROR_STREAM_CAPTURE_UNJOINED: "CAPTURE_REJECTED",
  ERROR_STREAM_CAPTURE_WRONG_THREAD: "CAPTURE_REJECTED",
} as const;

for (const [status, code] of Object.entries(codes)) {
  test(`CUDA_${status} is ${code}`, () => {
    assert.equal(tell(new FailureLog(), failed("cuInit", [0], status as keyof typeof codes)).code, code);
  });
}

test("every status has advice", () => {
  for (const status of Object.keys(cudaStatus) as (keyof typeof cudaStatus)[]) {
    const { message } = tell(new FailureLog(), failed("cuInit", [0], status));
    assert.match(message, /its text\. \S.{20,}\.$/);
  }
});

test("after a failure that loses the context, every later one names it", () => {
  const failures = new FailureLog();
  assert.doesNotMatch(tell(failures, synchronize).message, /failed first/);
  for (const later of [
    record,
    { ...synchronize, values: [stream] },
    foreign("cublasLt", "cublasLtMatmul", 14),
  ]) {
    const { message, numbers } = tell(failures, later);
    assert.match(
      message,
      /cuStreamSynchronize\(stream 0x7f00\) failed first: CUDA_ERROR_ILLEGAL_ADDRESS \(700\)/,
    );
    assert.match(message, /Restart this process; run under the strict driver to find the access\.$/);
    assert.deepEqual(
      { ...numbers, call: "", status: 0, name: "" },
      {
        call: "",
        status: 0,
        name: "",
        firstCall: "cuStreamSynchronize",
        firstStatus: 700,
      },
    );
  }
});

test("a failure that keeps the context is not named by later errors", () => {
  const failures = new FailureLog();
  tell(failures, failed("cuMemAlloc_v2", [1, 2 ** 40], "ERROR_OUT_OF_MEMORY"));
  const { message } = tell(failures, failed("cuMemFree_v2", [5], "ERROR_INVALID_VALUE"));
  assert.doesNotMatch(message, /failed first/);
});

const allocate = failed("cuMemAlloc_v2", [1, 64], "ERROR_STREAM_CAPTURE_UNSUPPORTED");
const endCapture = failed("cuStreamEndCapture", [stream, 1], "ERROR_STREAM_CAPTURE_INVALIDATED");

test("the error of an invalidated capture names the call that invalidated it", () => {
  const failures = new FailureLog();
  tell(failures, allocate);
  tell(failures, failed("cuEventRecord", [1, stream], "ERROR_STREAM_CAPTURE_INVALIDATED"));
  const { code, message } = tell(failures, endCapture);
  assert.equal(code, "CAPTURE_REJECTED");
  assert.match(
    message,
    /^cuStreamEndCapture\(.*\(901\).*cuMemAlloc_v2\(toMemory 0x1, size 64\) failed first: CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED \(900\)/,
  );
});

test("a failure of a library can invalidate a capture", () => {
  const failures = new FailureLog();
  tell(failures, foreign("cublasLt", "cublasLtMatmul", 14, "CUBLAS_STATUS_INTERNAL_ERROR"));
  assert.match(
    tell(failures, endCapture).message,
    /cublasLtMatmul\(.*\) failed first: CUBLAS_STATUS_INTERNAL_ERROR \(14\)/,
  );
});

test("failures before a capture are forgotten when it begins", () => {
  const failures = new FailureLog();
  tell(failures, allocate);
  failures.forgetCapture();
  assert.doesNotMatch(tell(failures, endCapture).message, /failed first/);
});

test("an event that is not reached is no failure, and is not explained", () => {
  const failures = new FailureLog();
  failures.note("cuda", cudaStatus.ERROR_NOT_READY, () => assert.fail("it was explained"));
  assert.doesNotMatch(tell(failures, endCapture).message, /failed first/);
});

test("the compiler's failures are separate from the device's", () => {
  const failures = new FailureLog();
  tell(failures, synchronize);
  const { code, message } = tell(
    failures,
    foreign("nvrtc", "nvrtcCompileProgram", 6, "NVRTC_ERROR_COMPILATION"),
  );
  assert.equal(code, "KERNEL_FAILED");
  assert.doesNotMatch(message, /failed first/);
});

test("a status without a name is shown by its number", () => {
  assert.match(
    tell(new FailureLog(), foreign("cublasLt", "cublasLtCreate", 99)).message,
    /failed: cublasLt status 99\./,
  );
});
