/** CUDA's functions as methods, with libraries that only record their arguments. */

import assert from "node:assert/strict";
import test from "node:test";
import { compileRecordingLibraries } from "../../../test/support/recording-library.js";
import { openCuda } from "./calls.js";
import { cudaStatus } from "./constants.js";
import { NativeBuffer } from "./native-buffer.js";

const libraries = compileRecordingLibraries({
  names: ["libcuda.so.1", "libnvrtc.so.13", "libcublasLt.so.13"],
});
const skip = libraries ? false : "this machine has no C compiler";
const environment = { HOLDFAST_CUDA_PATH: libraries?.folder };

/** CUDA whose calls return a given status. */
function openWith(status: number) {
  libraries!.answer("libcuda.so.1", status, 13_000);
  libraries!.answer("libnvrtc.so.13", status);
  libraries!.answer("libcublasLt.so.13", status);
  return openCuda({ environment });
}

test("the driver is opened at once, NVRTC and cuBLASLt at their first use", { skip }, () => {
  const cuda = openWith(0);
  const opened = () => cuda.libraries.map(({ path }) => path.replace(`${libraries!.folder}/`, ""));
  assert.deepEqual(opened(), ["libcuda.so.1"]);
  cuda.cublasLt.cublasLtGetVersion();
  assert.deepEqual(opened(), ["libcuda.so.1", "libcublasLt.so.13"]);
  cuda.nvrtc.nvrtcGetErrorString(0);
  cuda.nvrtc.nvrtcGetErrorString(0);
  assert.deepEqual(opened(), ["libcuda.so.1", "libcublasLt.so.13", "libnvrtc.so.13"]);
});

test("a call that succeeds returns nothing, and a call that fails throws", { skip }, () => {
  assert.equal(openWith(0).driver.cuCtxSetCurrent(0x1234), undefined);
  assert.throws(() => openWith(cudaStatus.ERROR_INVALID_CONTEXT).driver.cuCtxSetCurrent(0x1234), {
    code: "DRIVER_FAILED",
    message: /^cuCtxSetCurrent\(context 0x1234\) failed: CUDA_ERROR_RECORDED \(201\), as it was told\. /,
  });
});

test("under `status` a call returns its status and does not throw", { skip }, () => {
  assert.equal(openWith(cudaStatus.ERROR_NOT_READY).driver.status.cuEventQuery(5), 600);
  assert.equal(openWith(0).driver.status.cuEventQuery(5), 0);
});

test("the other libraries explain their own statuses", { skip }, () => {
  const { nvrtc, cublasLt } = openWith(3);
  assert.throws(() => nvrtc.nvrtcDestroyProgram(1), {
    code: "KERNEL_FAILED",
    message: /^nvrtcDestroyProgram\(program 0x1\) failed: text of nvrtcGetErrorString \(3\)\. /,
  });
  assert.throws(() => cublasLt.cublasLtDestroy(1), {
    code: "OUT_OF_MEMORY",
    message: /failed: text of cublasLtGetStatusName \(3\), text of cublasLtGetStatusString\. /,
  });
});

test("after a lost context a failure of any library names the first", { skip }, () => {
  const { driver, cublasLt } = openWith(cudaStatus.ERROR_LAUNCH_FAILED);
  assert.equal(driver.status.cuStreamQuery(9), cudaStatus.ERROR_LAUNCH_FAILED);
  assert.throws(() => cublasLt.cublasLtCreate(8), /cuStreamQuery\(stream 0x9\) failed first/);
});

test("the end of a capture names the failure inside it, and no other", { skip }, () => {
  const { driver } = openWith(cudaStatus.ERROR_STREAM_CAPTURE_UNSUPPORTED);
  const invalidate = () => libraries!.answer("libcuda.so.1", cudaStatus.ERROR_STREAM_CAPTURE_INVALIDATED);
  assert.throws(() => driver.cuMemAlloc_v2(1, 2), { code: "CAPTURE_REJECTED" });
  invalidate();
  assert.throws(() => driver.cuStreamEndCapture(1, 2), /cuMemAlloc_v2\(toMemory 0x1, size 2\) failed first/);
  assert.throws(
    () => driver.cuStreamEndCapture(1, 2),
    (error: Error) => !/failed first/.test(error.message),
  );
});

test("a missing function is reported at its first call, not before", { skip }, () => {
  const older = compileRecordingLibraries({
    names: ["libcuda.so.1"],
    without: "cuStreamGetCaptureInfo_v2",
  })!;
  const { driver } = openCuda({ environment: { HOLDFAST_CUDA_PATH: older.folder } });
  driver.cuInit(0);
  assert.throws(() => driver.cuStreamGetCaptureInfo_v2(1, 2, 3, 4, 5, 6), {
    code: "NO_CUDA",
    message: /libcuda\.so\.1 has no function cuStreamGetCaptureInfo_v2: .* Update it/,
  });
});

test("a function is bound once", { skip }, () => {
  const { driver } = openWith(0);
  assert.equal(driver.cuInit, driver.cuInit);
  assert.equal(driver.status.cuInit, driver.status.cuInit);
});

test("C can write to a block: the driver's version is read from it", { skip }, () => {
  const { driver } = openWith(0);
  const out = new NativeBuffer();
  driver.cuDriverGetVersion(out.address);
  assert.equal(out.i32(), 13_000);
  out.free();
});
