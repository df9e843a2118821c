/** The search for CUDA's libraries: its order, and the error for a missing one. */

import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, realpathSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, dirname, isAbsolute, join } from "node:path";
import test, { type TestContext } from "node:test";
import type { LibraryHandle } from "koffi";
import { HoldfastError } from "../../errors/index.js";
import type { CudaLibrary } from "./cuda-error.js";
import { type LibrarySearch, loadedFile, openLibrary } from "./libraries.js";

/** Creates a file system with these files. */
function machineWith(t: TestContext, ...files: string[]): string {
  const root = realpathSync(mkdtempSync(join(tmpdir(), "holdfast-root-")));
  t.after(() => rmSync(root, { recursive: true }));
  for (const file of files) {
    mkdirSync(dirname(join(root, file)), { recursive: true });
    writeFileSync(join(root, file), "");
  }
  return root;
}

interface Look extends Pick<LibrarySearch, "architecture" | "driverMajor"> {
  readonly environment?: Readonly<Record<string, string>>;
  /** The paths and sonames that load. Default: every file. */
  readonly loads?: (name: string) => boolean;
}

interface Outcome {
  /** In this order; paths are relative to the root. */
  readonly tried: readonly string[];
  readonly found: string | undefined;
  readonly message: string;
}

function search(library: CudaLibrary, root: string, options: Look = {}): Outcome {
  const { loads = isAbsolute, environment, ...rest } = options;
  const handle = {} as LibraryHandle;
  const tried: string[] = [];
  const load = (name: string): LibraryHandle => {
    const path = name.replace(root, "");
    tried.push(path);
    if (loads(path)) return handle;
    throw new Error("wrong ELF class");
  };
  const search = {
    root,
    load,
    architecture: "x64",
    environment: { HOME: "/home/ada", ...environment },
    ...rest,
  };
  try {
    const opened = openLibrary(library, search);
    assert.equal(opened.handle, handle);
    return { tried, found: opened.path.replace(root, ""), message: "" };
  } catch (error) {
    assert.ok(error instanceof HoldfastError && error.code === "NO_CUDA", String(error));
    return { tried, found: undefined, message: error.message.replaceAll(root, "") };
  }
}

const never = () => false;

test("the order is: the setting, the system's loader, toolkits, the system's folders, pip's packages", (t) => {
  const inOrder = [
    "/own/libnvrtc.so.13",
    "libnvrtc.so.13",
    "libnvrtc.so.12",
    "/tools/cuda/lib64/libnvrtc.so.13",
    "/usr/local/cuda-13.0/lib64/libnvrtc.so.13",
    "/usr/local/cuda-12.9/lib64/libnvrtc.so.12",
    "/usr/lib/x86_64-linux-gnu/libnvrtc.so.12",
    "/own/.venv/lib/python3.12/site-packages/nvidia/cu13/lib/libnvrtc.so.13",
    "/home/ada/.local/lib/python3.13/site-packages/nvidia/cu13/lib/libnvrtc.so.13",
    "/home/ada/.local/lib/python3.9/site-packages/nvidia/cuda_nvrtc/lib/libnvrtc.so.12",
    "/usr/local/lib/python3.11/dist-packages/nvidia/cuda_nvrtc/lib/libnvrtc.so.12",
    "/opt/app/.venv/lib/python3.12/site-packages/nvidia/cu13/lib/libnvrtc.so.13",
  ];
  const root = machineWith(t, ...inOrder.filter((name) => isAbsolute(name)));
  const environment = { HOLDFAST_CUDA_PATH: "/own", CUDA_HOME: "/tools/cuda", VIRTUAL_ENV: "/own/.venv" };
  assert.deepEqual(search("nvrtc", root, { environment, loads: never }).tried, inOrder);
  for (const [index, name] of inOrder.entries()) {
    const { tried } = search("nvrtc", root, { environment, loads: (one) => one === name });
    assert.deepEqual(tried, inOrder.slice(0, index + 1));
  }
});

for (const folder of ["", "lib64/", "lib/", "targets/x86_64-linux/lib/"]) {
  test(`HOLDFAST_CUDA_PATH finds a library in ${folder || "the folder itself"}`, (t) => {
    const file = `/own/${folder}libcublasLt.so.12`;
    const environment = { HOLDFAST_CUDA_PATH: "/own" };
    assert.equal(search("cublasLt", machineWith(t, file), { environment }).found, file);
  });
}

const places: readonly (readonly [CudaLibrary, string, string])[] = [
  ["cuda", "x64", "/usr/lib/x86_64-linux-gnu/libcuda.so.1"],
  ["cuda", "x64", "/usr/lib/x86_64-linux-gnu/nvidia/current/libcuda.so.1"],
  ["cuda", "x64", "/usr/lib/wsl/lib/libcuda.so.1"],
  ["cuda", "arm64", "/usr/lib/aarch64-linux-gnu/libcuda.so.1"],
  ["nvrtc", "arm64", "/usr/local/cuda/targets/sbsa-linux/lib/libnvrtc.so.13"],
  ["nvrtc", "arm64", "/usr/local/cuda-12.9/targets/aarch64-linux/lib/libnvrtc.so.12"],
  ["cublasLt", "x64", "/opt/cuda/lib64/libcublasLt.so.13"],
  ["cublasLt", "arm64", "/usr/lib/python3/dist-packages/nvidia/cublas/lib/libcublasLt.so.12"],
  ["cublasLt", "x64", "/opt/conda/lib/python3.12/site-packages/nvidia/cu13/lib/libcublasLt.so.13"],
];

for (const [library, architecture, file] of places) {
  test(`${basename(file)} of ${dirname(file)} is found on ${architecture}`, (t) => {
    assert.equal(search(library, machineWith(t, file), { architecture }).found, file);
  });
}

test("folders of another processor architecture are not searched", (t) => {
  const root = machineWith(
    t,
    "/usr/lib/aarch64-linux-gnu/libcuda.so.1",
    "/usr/local/cuda/targets/sbsa-linux/lib/libcuda.so.1",
  );
  assert.equal(search("cuda", root).found, undefined);
});

test("a folder with two names is searched once", (t) => {
  const root = machineWith(t, "/usr/local/cuda-13.0/lib64/libnvrtc.so.13");
  symlinkSync("cuda-13.0", join(root, "usr/local/cuda"));
  symlinkSync("lib64", join(root, "usr/local/cuda-13.0/lib"));
  const { tried } = search("nvrtc", root, { loads: never });
  assert.deepEqual(tried, ["libnvrtc.so.13", "libnvrtc.so.12", "/usr/local/cuda/lib64/libnvrtc.so.13"]);
});

test("a file that does not load is skipped", (t) => {
  const [broken, sound] = ["/own/libnvrtc.so.13", "/usr/local/cuda/lib64/libnvrtc.so.13"];
  const loads = (name: string) => name === sound;
  const root = machineWith(t, broken, sound);
  assert.equal(search("nvrtc", root, { environment: { HOLDFAST_CUDA_PATH: "/own" }, loads }).found, sound);
});

test("with a driver of CUDA 12 the library of CUDA 12 is loaded, even if one of CUDA 13 exists", (t) => {
  const root = machineWith(
    t,
    "/usr/local/cuda-13.0/lib64/libnvrtc.so.13",
    "/usr/local/cuda-12.9/lib64/libnvrtc.so.12",
  );
  const { found, tried } = search("nvrtc", root, { driverMajor: 12 });
  assert.equal(found, "/usr/local/cuda-12.9/lib64/libnvrtc.so.12");
  assert.ok(!tried.some((name) => name.endsWith(".13")));
});

test("a library that is too new for the driver is reported if there is no other", (t) => {
  const root = machineWith(t, "/usr/local/cuda-13.0/lib64/libcublasLt.so.13");
  assert.equal(
    search("cublasLt", root, { driverMajor: 12 }).message,
    "CUDA is not available: libcublasLt.so.12, the GEMM library, was not found. /usr/local/cuda-13.0/lib64/libcublasLt.so.13 needs a newer driver than this one (CUDA 12). Searched with the system's loader and in /usr/local/cuda-13.0/lib64. Install pip's nvidia-cublas (for CUDA 12 nvidia-cublas-cu12) or Debian's libcublaslt12, or set HOLDFAST_CUDA_PATH to the folder that contains it.",
  );
});

test("a driver older than every library is reported", (t) => {
  const root = machineWith(t, "/usr/local/cuda/lib64/libnvrtc.so.12");
  assert.match(
    search("nvrtc", root, { driverMajor: 11 }).message,
    /libnvrtc\.so, the kernel compiler, was not found\. .*The driver supports CUDA 11; Holdfast needs CUDA 12 or later\./,
  );
});

test("a missing driver is reported with its packages", (t) => {
  assert.equal(
    search("cuda", machineWith(t)).message,
    "CUDA is not available: libcuda.so.1, the NVIDIA driver's library, was not found. Searched with the system's loader and in no folder (none of the default folders exists). Install the NVIDIA driver (Debian's packages nvidia-driver and libcuda1), or set HOLDFAST_CUDA_PATH to the folder that contains it.",
  );
});

test("a missing compiler is reported with its packages, and with the files that did not load and why", (t) => {
  const root = machineWith(t, "/usr/local/cuda/lib64/libnvrtc.so.13");
  const { message } = search("nvrtc", root, { loads: never });
  assert.match(message, /libnvrtc\.so\.13 or libnvrtc\.so\.12, the kernel compiler, was not found\./);
  assert.match(message, /\/usr\/local\/cuda\/lib64\/libnvrtc\.so\.13 does not load: wrong ELF class\./);
  assert.match(message, /pip's nvidia-cuda-nvrtc .* Debian's libnvrtc12/);
});

test("a setting that names no folder is reported", (t) => {
  const { message } = search("cuda", machineWith(t), { environment: { HOLDFAST_CUDA_PATH: "/wrong" } });
  assert.match(message, /HOLDFAST_CUDA_PATH, \/wrong, does not exist\./);
});

test("the setting auto is the same as no setting", (t) => {
  const root = machineWith(t, "/auto/libcuda.so.1");
  const { tried, message } = search("cuda", root, { environment: { HOLDFAST_CUDA_PATH: "auto" } });
  assert.deepEqual(tried, ["libcuda.so.1"]);
  assert.doesNotMatch(message, /HOLDFAST_CUDA_PATH, auto/);
});

test("of many folders the first are listed, with the number of the rest", (t) => {
  const versions = Array.from({ length: 20 }, (_, index) => `/usr/local/cuda-13.${index}/lib64/readme`);
  const { message } = search("cuda", machineWith(t, ...versions));
  assert.match(message, /in \/usr\/local\/cuda-13\.19\/lib64, .*cuda-13\.8\/lib64 and 8 more\./);
});

test("the path is the target of a link, and for a soname the file that this process has mapped", (t) => {
  const root = machineWith(t, "/own/libcuda.so.580.82.07");
  symlinkSync("libcuda.so.580.82.07", join(root, "own/libcuda.so.1"));
  const environment = { HOLDFAST_CUDA_PATH: "/own" };
  assert.equal(search("cuda", root, { environment }).found, "/own/libcuda.so.580.82.07");
  assert.match(loadedFile("libc.so.6"), /^\/.*\/libc\.so\.6$/);
  assert.equal(loadedFile("libnosuch.so.1"), "libnosuch.so.1");
});
