/** The cache of compiled kernels: which entries it returns, which it ignores, and its permissions. */

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import {
  chmodSync,
  chownSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test, { afterEach, beforeEach, describe } from "node:test";
import { promisify } from "node:util";
import fc from "fast-check";
import { emulatorMissing, openEmulator } from "../../../test/support/emulator.js";
import { openBench, withEmulatorDriver } from "../../../test/support/emulator-driver.js";
import { repositoryRoot } from "../../../test/support/repository.js";
import { basicKernels } from "../basic-kernels.js";
import type { KernelSource } from "../driver.js";
import { defaultCacheFolder, openCubinCache } from "./cubin-cache.js";

const skip = emulatorMissing;
const emulator = skip ? undefined! : openEmulator();
const isRoot = process.getuid?.() === 0;

let root = "";
let folder = "";
beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), "holdfast-cubins-"));
  folder = join(root, "cache", "holdfast");
});
afterEach(() => {
  rmSync(root, { recursive: true, force: true });
  if (!skip) emulator.reset();
});

const content = Uint8Array.from({ length: 3000 }, (_, index) => index % 253);
const modeOf = (path: string): number => statSync(path).mode & 0o777;

/** A cache with one entry: its key and its file. */
function fill() {
  const cache = openCubinCache(folder);
  const key = cache.makeKey(["code", "flags"]);
  cache.write(key, content);
  return { cache, key, path: join(folder, `${key}.cubin`) };
}

describe("an entry", () => {
  test("is returned whole by its key, and by no other key", () => {
    const { cache, key } = fill();
    assert.deepEqual(Uint8Array.from(cache.read(key)!), content);
    assert.deepEqual(Uint8Array.from(openCubinCache(folder).read(key)!), content);
    assert.equal(cache.read(cache.makeKey(["code", "other flags"])), undefined);
  });

  test("and its folder are private to this user", () => {
    const { path } = fill();
    assert.deepEqual([modeOf(folder), modeOf(path)], [0o700, 0o600]);
    assert.deepEqual(readdirSync(folder), [path.slice(folder.length + 1)]);
  });

  test("can be empty", () => {
    const { cache } = fill();
    const key = cache.makeKey(["empty"]);
    cache.write(key, new Uint8Array());
    assert.equal(cache.read(key)?.length, 0);
  });
});

/** Changes that make an entry invalid. */
const damages: Readonly<Record<string, (path: string) => void>> = {
  "was cut off": (path) => writeFileSync(path, readFileSync(path).subarray(0, 1000)),
  "was cut off in its head": (path) => writeFileSync(path, readFileSync(path).subarray(0, 20)),
  "is empty": (path) => writeFileSync(path, ""),
  "has one bit changed": (path) => {
    const file = readFileSync(path);
    file[file.length - 1]! ^= 1;
    writeFileSync(path, file);
  },
  "has one bit of its checksum changed": (path) => {
    const file = readFileSync(path);
    file[20]! ^= 1;
    writeFileSync(path, file);
  },
  "is of another format": (path) => {
    const file = readFileSync(path);
    file[15]! += 1;
    writeFileSync(path, file);
  },
  "others may write": (path) => chmodSync(path, 0o602),
  "the group may write": (path) => chmodSync(path, 0o620),
  "is a link to a sound one": (path) => {
    renameSync(path, `${path}.moved`);
    symlinkSync(`${path}.moved`, path);
  },
  "is a folder": (path) => {
    rmSync(path);
    mkdirSync(path);
  },
};

describe("an entry counts as missing if it", () => {
  for (const [damage, act] of Object.entries(damages)) {
    test(damage, () => {
      const { cache, key, path } = fill();
      act(path);
      assert.equal(cache.read(key), undefined);
      cache.write(key, content);
      if (damage === "is a folder") return;
      assert.deepEqual(Uint8Array.from(cache.read(key)!), content);
      assert.deepEqual([statSync(path).isFile(), modeOf(path)], [true, 0o600]);
      assert.equal(readdirSync(folder).filter((name) => name.endsWith(".part")).length, 0);
    });
  }

  test("belongs to another user", { skip: isRoot ? false : "only root can give a file away" }, () => {
    const { cache, key, path } = fill();
    chownSync(path, 12_345, 12_345);
    assert.equal(cache.read(key), undefined);
    cache.write(key, content);
    assert.equal(statSync(path).uid, process.getuid?.());
    assert.deepEqual(Uint8Array.from(cache.read(key)!), content);
  });

  test("has a changed byte or is truncated", () => {
    const { cache, key, path } = fill();
    const sound = readFileSync(path);
    fc.assert(
      fc.property(
        fc.nat(sound.length - 1),
        fc.integer({ min: 1, max: 255 }),
        fc.boolean(),
        (at, by, isCut) => {
          const file = isCut ? sound.subarray(0, at) : Buffer.from(sound);
          if (!isCut) file[at]! ^= by;
          writeFileSync(path, file);
          assert.equal(cache.read(key), undefined);
        },
      ),
    );
    writeFileSync(path, sound);
    assert.deepEqual(Uint8Array.from(cache.read(key)!), content);
  });
});

describe("a folder", () => {
  for (const mode of [0o770, 0o707, 0o777]) {
    test(`of mode ${mode.toString(8)} is neither read nor written`, () => {
      const { cache, key, path } = fill();
      chmodSync(folder, mode);
      assert.equal(cache.read(key), undefined);
      rmSync(path);
      cache.write(key, content);
      assert.equal(existsSync(path), false);
    });
  }

  test("that belongs to another user is neither read nor written", {
    skip: isRoot ? false : "only root can give a folder away",
  }, () => {
    const { cache, key, path } = fill();
    chownSync(folder, 12_345, 12_345);
    assert.equal(cache.read(key), undefined);
    rmSync(path);
    cache.write(key, content);
    assert.equal(existsSync(path), false);
  });

  test("that cannot be created is no error", () => {
    writeFileSync(join(root, "cache"), "a file in the folder's place");
    const cache = openCubinCache(folder);
    const key = cache.makeKey(["code"]);
    cache.write(key, content);
    assert.equal(cache.read(key), undefined);
  });

  test("that cannot be written is no error", { skip: isRoot ? "root may write everywhere" : false }, () => {
    const { cache, key } = fill();
    chmodSync(folder, 0o500);
    cache.write(cache.makeKey(["other"]), content);
    assert.deepEqual(Uint8Array.from(cache.read(key)!), content);
    chmodSync(folder, 0o700);
  });

  test('named "off" keeps nothing and makes no folder', () => {
    const cache = openCubinCache("off");
    const key = cache.makeKey(["code"]);
    cache.write(key, content);
    assert.equal(cache.read(key), undefined);
    assert.equal(existsSync(join(repositoryRoot, "off")), false);
  });

  test("is in the user's cache folder by default", () => {
    assert.equal(defaultCacheFolder({ XDG_CACHE_HOME: "/x", HOME: "/home/a" }), "/x/holdfast");
    assert.equal(defaultCacheFolder({ HOME: "/home/a" }), "/home/a/.cache/holdfast");
    assert.equal(defaultCacheFolder({ XDG_CACHE_HOME: "", HOME: "/home/a" }), "/home/a/.cache/holdfast");
    assert.match(defaultCacheFolder({}), /\/\.cache\/holdfast$/);
  });
});

test("lists of texts with equal concatenations have different keys", () => {
  const { makeKey: keyOf } = openCubinCache("off");
  assert.notEqual(keyOf(["ab", "c"]), keyOf(["a", "bc"]));
  assert.notEqual(keyOf(["1:a"]), keyOf(["1", "a"]));
  assert.notEqual(keyOf([]), keyOf([""]));
  assert.notEqual(keyOf(["é"]), keyOf(["e\u0301"]));
  assert.equal(keyOf(["a", "b"]), keyOf(["a", "b"]));
  fc.assert(
    fc.property(fc.array(fc.string()), fc.array(fc.string()), (a, b) => {
      assert.equal(keyOf(a) === keyOf(b), JSON.stringify(a) === JSON.stringify(b));
    }),
  );
});

describe("a driver with a cache", { skip }, () => {
  const counts = (sources: readonly KernelSource[] = [basicKernels.fill]) =>
    withEmulatorDriver({ cacheFolder: folder }, (driver) => {
      const { memory, stream, read } = openBench(driver, 4096);
      for (const source of sources) {
        const kernel = driver.loadKernel(source);
        if (source.name !== "fill") continue;
        driver.launch(stream, { kernel, blocks: 1, arguments: [memory, 2.5, 3] });
        assert.equal(new Float32Array(read(memory).buffer)[2], 2.5);
      }
      return { ...driver.compiled };
    });

  test("compiles a kernel once, for all later processes and all kernels with the same code", () => {
    assert.deepEqual(counts(), { compiled: 1, cached: 0 });
    assert.deepEqual(counts(), { compiled: 0, cached: 1 });
    const renamed = { ...basicKernels.fill, name: "another name" };
    assert.deepEqual(counts([basicKernels.fill, basicKernels.add, renamed]), { compiled: 1, cached: 2 });
    assert.equal(emulator.calls("nvrtcCompileProgram"), 2);
  });

  test("compiles again for other code, another driver, another compiler and another architecture", () => {
    assert.deepEqual(counts(), { compiled: 1, cached: 0 });
    const { cuda, ...rest } = basicKernels.fill;
    const other = { ...rest, cuda: { ...cuda!, code: `${cuda!.code}\n` } };
    assert.deepEqual(counts([other]), { compiled: 1, cached: 0 });
    const changes = { driverVersion: 13_010, computeMinor: 3 } as const;
    for (const [setting, value] of Object.entries(changes)) {
      emulator.set(setting as keyof typeof changes, value);
      assert.deepEqual(counts(), { compiled: 1, cached: 0 }, setting);
      assert.deepEqual(counts(), { compiled: 0, cached: 1 }, setting);
      emulator.reset();
    }
    assert.deepEqual(counts(), { compiled: 0, cached: 1 });
    assert.equal(readdirSync(folder).length, 4);
  });

  test("compiles damaged entries again, and writes nothing if the compilation fails", () => {
    counts();
    const [name] = readdirSync(folder);
    writeFileSync(join(folder, name!), "damaged");
    assert.deepEqual(counts(), { compiled: 1, cached: 0 });
    assert.deepEqual(counts(), { compiled: 0, cached: 1 });
    const wrong = {
      name: "wrong",
      parameters: [],
      cuda: { code: "no code", entry: "hf_wrong", threads: 32 },
    };
    assert.throws(() => counts([wrong]), { code: "KERNEL_FAILED" });
    assert.deepEqual(readdirSync(folder), [name]);
  });

  test("keeps notes for a device, a driver and the versions of its libraries", () => {
    const recall = () => withEmulatorDriver({ cacheFolder: folder }, (driver) => driver.recall?.("fastest"));
    withEmulatorDriver({ cacheFolder: folder }, (driver) => driver.remember?.("fastest", "the second"));
    assert.equal(recall(), "the second");
    for (const [setting, value] of [
      ["driverVersion", 13_010],
      ["cublasLtVersion", 130_002],
    ] as const) {
      emulator.set(setting, value);
      assert.equal(recall(), undefined, setting);
      emulator.reset();
    }
    assert.equal(recall(), "the second");
  });

  test("compiles kernels ahead, each code once, and loads them from memory", () => {
    const { fill, add, scale } = basicKernels;
    const renamed = { ...fill, name: "another name" };
    const without = { name: "no code", parameters: [] };
    for (const cacheFolder of [folder, folder, "off"]) {
      withEmulatorDriver({ cacheFolder }, (driver) => {
        const before = emulator.calls("nvrtcCompileProgram");
        driver.compileKernels?.([fill, add, renamed, without]);
        const ahead = { ...driver.compiled };
        assert.equal(ahead.compiled + ahead.cached, 2);
        for (const source of [fill, add, renamed]) driver.loadKernel(source);
        assert.deepEqual(driver.compiled, ahead);
        assert.equal(emulator.calls("nvrtcCompileProgram"), before + ahead.compiled);
        driver.loadKernel(scale);
      });
    }
    assert.equal(readdirSync(folder).length, 3);
  });

  test("reports the kernel that fails by its name, and keeps those that were compiled before it", () => {
    const { fill, add } = basicKernels;
    // The shortest is compiled first, then the others from the longest on.
    const code = `${"// a long comment\n".repeat(1000)}no code`;
    const wrong = { name: "wrong", parameters: [], cuda: { code, entry: "hf_wrong", threads: 32 } };
    withEmulatorDriver({ cacheFolder: folder, threads: 1 }, (driver) => {
      assert.throws(() => driver.compileKernels?.([fill, wrong, add]), {
        code: "KERNEL_FAILED",
        message: /^Kernel "wrong" did not compile for sm_90 \(NVRTC_ERROR_COMPILATION\):\nwrong\.cu:1001/,
      });
      assert.deepEqual(driver.compiled, { compiled: 1, cached: 0 });
      driver.loadKernel(fill);
      driver.loadKernel(add);
      assert.deepEqual(driver.compiled, { compiled: 2, cached: 0 });
    });
  });

  test('and the folder "off" compiles every time', () => {
    for (let turn = 0; turn < 2; turn++) {
      withEmulatorDriver({ cacheFolder: "off" }, (driver) => {
        driver.loadKernel(basicKernels.fill);
        driver.loadKernel(basicKernels.fill);
        assert.deepEqual(driver.compiled, { compiled: 2, cached: 0 });
      });
    }
  });

  test("shares it with a process that writes at the same time", async () => {
    const script = `
      import { basicKernels, openCudaDriver } from "holdfast/internals";
      const cacheFolder = ${JSON.stringify(folder)};
      for (let turn = 0; turn < 5; turn++) {
        const driver = openCudaDriver({ cacheFolder });
        const sources = Object.values(basicKernels);
        if (turn % 2 === 0) driver.compileKernels(sources);
        for (const source of sources) driver.loadKernel(source);
        const { compiled, cached } = driver.compiled;
        if (compiled + cached !== 5 || (turn > 0 && compiled > 0)) throw new Error(JSON.stringify(driver.compiled));
        driver.close();
      }`;
    const environment = { ...process.env, HOLDFAST_CUDA_PATH: emulator.folder };
    const options = { cwd: repositoryRoot, env: environment };
    const run = () =>
      promisify(execFile)(process.execPath, ["--input-type=module", "--eval", script], options);
    await Promise.all([run(), run()]);
    const names = readdirSync(folder);
    assert.equal(names.length, 5, names.join(", "));
    assert.ok(names.every((name) => /^[0-9a-f]{64}\.cubin$/.test(name)));
    assert.deepEqual(counts(Object.values(basicKernels)), { compiled: 0, cached: 5 });
  });
});
