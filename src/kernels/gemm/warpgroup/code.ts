/** The text of products by warpgroups: tiles in shared memory, which the tensor cores read by themselves. */

import type { KernelSource, Parameter } from "../../../driver/index.js";
import { cudaKernel } from "../../cuda-function.js";
import { boxInstructions } from "../box-instructions.js";
import { chooseProduct, localsOf, type ProductLocal } from "../choose-product.js";
import type { AccessToC } from "../problem.js";
import { type PrintedFinish, printFinish } from "./finish.js";
import { type Finish, type WarpgroupElement, type WarpgroupForm, warpgroupCapability } from "./form.js";

/** What a kernel knows of each of its products besides its operands; nothing of a C that it does not store. */
function figuresFor(finish: Finish | undefined): readonly string[] {
  return ["m", "n", "k", "aBatch", "bBatch", ...(storesResult(finish) ? ["cStride", "cBatch"] : [])];
}

/** What else the maps of its operands are made of. */
const mapFigures = ["aStride", "bStride", "batch"] as const;

const storesResult = (finish: Finish | undefined): boolean => !finish || finish.keepsResult;

/**
 * The parameters of a kernel, in their order: all that there is of the first product, then of the second, each with the
 * product's number behind its name; then what its finish takes. `first` is the first of the blocks that work on a product.
 */
export function warpgroupParameters(
  { hasBias }: WarpgroupForm,
  accesses: readonly AccessToC[],
  finish?: Finish,
): Readonly<Record<string, Parameter>> {
  const parameters: Record<string, Parameter> = {};
  for (const [index, access] of accesses.entries()) {
    Object.assign(parameters, { [`a${index}`]: "in", [`b${index}`]: "in" });
    if (storesResult(finish)) parameters[`c${index}`] = access;
    if (hasBias) parameters[`bias${index}`] = "in";
    for (const figure of [...figuresFor(finish), ...mapFigures]) parameters[`${figure}${index}`] = "i32";
    if (hasBias) parameters[`biasBatch${index}`] = "i32";
    if (index > 0) parameters[`first${index}`] = "u32";
  }
  return { ...parameters, ...(finish && printFinish(finish).parameters) };
}

/** By the name of each: what it is called in instructions, and how many terms one takes. */
const elements: Readonly<Record<WarpgroupElement, { name: string; terms: number }>> = {
  bf16: { name: "Bf16", terms: 16 },
  f16: { name: "F16", terms: 16 },
  tf32: { name: "Tf32", terms: 8 },
};

/** The machine's instructions by the names that we use; whoever emulates the machine brings its own. */
function instructionsFor(element: WarpgroupElement, width: number): string {
  const { terms } = elements[element];
  const sums = Array.from({ length: width / 2 }, (_, index) => index);
  const places = sums.map((index) => `%${index}`).join(", ");
  const operands = sums.map((index) => `"+f"(sums[${index}])`).join(", ");
  const [left, right] = [sums.length, sums.length + 1];
  // Floats can't be turned on their way to the tensor cores.
  const turns = element === "tf32" ? "" : `, %${right + 1}, %${right + 2}`;
  const turned = element === "tf32" ? "" : `, "n"(!isLeftAlong), "n"(!isRightAlong)`;
  return `
#ifndef HOLDFAST_INSTRUCTIONS
struct Bf16 { static constexpr unsigned bytes = 2; };
struct F16 { static constexpr unsigned bytes = 2; };
struct Tf32 { static constexpr unsigned bytes = 4; };
#define launchedMemory(name, bytes) extern __shared__ unsigned char name[]
// Where a tile lies and how far it is to the next rows and terms of it; swizzled by 128 bytes.
static __device__ __forceinline__ unsigned long long describeTile(const unsigned char* tile, unsigned across) {
  const unsigned place = (unsigned)__cvta_generic_to_shared(tile);
  return (unsigned long long)((place & 0x3ffffu) >> 4) | (unsigned long long)(across >> 4) << 16 |
         (unsigned long long)(1024u >> 4) << 32 | 1ull << 62;
}
// sums[64, columns] += left[64, 32 bytes] · right[32 bytes, columns], spread over four warps; begins it and goes on.
template <class Element, unsigned columns, bool isLeftAlong, bool isRightAlong>
static __device__ __forceinline__ void multiplyTiles(
    float (&sums)[columns / 2], const unsigned char* left, const unsigned char* right) {
  asm volatile(
      "{\\n.reg .pred adds;\\nsetp.eq.u32 adds, 0, 0;\\n"
      "wgmma.mma_async.sync.aligned.m64n${width}k${terms}.f32.${element}.${element} {${places}}, %${left}, %${right}, adds, 1, 1${turns};\\n}"
      : ${operands}
      : "l"(describeTile(left, isLeftAlong ? 16 : 8192)), "l"(describeTile(right, isRightAlong ? 16 : 8192))${turned});
}
// Nothing that sets a sum is moved behind this: between products it would make each wait for the last.
static __device__ __forceinline__ void settle(float& sum) { asm volatile("" : "+f"(sum)::"memory"); }
static __device__ __forceinline__ void beginProducts() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
static __device__ __forceinline__ void endProducts() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Waits until no more than so many groups of products are being made.
template <unsigned left>
static __device__ __forceinline__ void awaitProducts() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(left) : "memory");
}
// Lets the tensor cores see what this thread has stored, once it is behind a barrier.
static __device__ __forceinline__ void publishStores() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
template <class Float>
static __device__ __forceinline__ Float roundToTf32(Float value) {
  unsigned bits;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(value));
  return __uint_as_float(bits);
}
${boxInstructions}
#endif`;
}

/**
 * `Side`: one operand's tile in shared memory, 128 bytes of terms of each of its rows or columns of C. Terms that lie side by side
 * stay so, and half floats that lie apart too; floats that lie apart are turned round once they are there, four by four.
 */
const sides = `
static constexpr unsigned depth = 128 / Element::bytes;

template <bool isAlong, unsigned size>
struct Side {
  static constexpr bool isTurned = Element::bytes == 4 && !isAlong, liesAlong = isAlong || isTurned;
  // Along: one box with a row for each row or column of C. Else a box has a row for each term, and so many of C's.
  static constexpr unsigned bytes = size * 128, across = 128 / Element::bytes, boxBytes = depth * 128;

  // Terms from \`term\` on, of the rows or columns of C from \`first\` on; what is not there becomes 0.
  static __device__ __forceinline__ void bring(
      unsigned char* to, const MatrixMap* map, int first, int term, int matrix, Gate* gate) {
    if constexpr (isAlong) {
      bringBox(to, map, term, first, matrix, gate);
    } else {
#pragma unroll
      for (unsigned box = 0; box < size / across; box++)
        bringBox(to + box * boxBytes, map, first + box * across, term, matrix, gate);
    }
  }

  // The place of a chunk of 16 bytes in its row of 128, such that neighbours of a column lie in different banks.
  static __device__ __forceinline__ unsigned placeOf(unsigned row, unsigned within) {
    return row * 128 + ((within ^ (row & 7)) << 4);
  }

  // A thread takes four columns of C and four terms; eight threads store to different banks.
  static __device__ __forceinline__ void turn(unsigned char* to, const unsigned char* from) {
#pragma unroll
    for (unsigned own = threadIdx.x; own < size * depth / 16; own += consumers) {
      const unsigned lane = own % 32, group = own / 32;
      const unsigned column = (group / 2 * 8 + (lane & 1) + lane / 8 * 2) * 4, term = (group % 2 * 4 + lane / 2 % 4) * 4;
      float4 terms[4];
#pragma unroll
      for (unsigned e = 0; e < 4; e++) {
        const unsigned char* box = from + column / across * boxBytes;
        terms[e] = *reinterpret_cast<const float4*>(box + placeOf(term + e, column % across / 4));
      }
      const float turned[4][4] = {{terms[0].x, terms[1].x, terms[2].x, terms[3].x}, {terms[0].y, terms[1].y, terms[2].y, terms[3].y},
                                  {terms[0].z, terms[1].z, terms[2].z, terms[3].z}, {terms[0].w, terms[1].w, terms[2].w, terms[3].w}};
#pragma unroll
      for (unsigned e = 0; e < 4; e++) {
        *reinterpret_cast<float4*>(to + placeOf(column + e, term / 4)) = make_float4(
            roundToTf32(turned[e][0]), roundToTf32(turned[e][1]), roundToTf32(turned[e][2]), roundToTf32(turned[e][3]));
      }
    }
  }

  // The tile from a row on, and from the so many-th 32 bytes of terms on.
  static __device__ __forceinline__ const unsigned char* at(const unsigned char* tile, unsigned row, unsigned part) {
    return liesAlong ? tile + row * 128 + part * 32 : tile + row / across * boxBytes + part * (32 / Element::bytes * 128);
  }
};`;

/** What a block may have of a multiprocessor's memory, less what stands around its tiles. */
const mostTileBytes = 225 * 1024;

/** How many tiles that have been turned round there are: one is being made while two may still be multiplied. */
const turnedTiles = 3;

/** The last warp brings tiles, the others multiply them. */
const multiplication = `
  // A swizzle goes by addresses, so that tiles begin on 1024 bytes.
  unsigned char* const tiles = launched + (1024 - reinterpret_cast<unsigned long long>(launched) % 1024) % 1024;
  unsigned char* const turned = tiles + stages * (Left::bytes + Right::bytes);
  Gate* const full = reinterpret_cast<Gate*>(turned + (Right::isTurned ? ${turnedTiles} * Right::bytes : 0));
  Gate* const free = full + stages;
  const unsigned tilesAcross = (n + tileColumns - 1) / tileColumns, tilesDown = (m + tileRows - 1) / tileRows;
  const unsigned inBatch = block % (tilesAcross * tilesDown);
  const long long product = block / (tilesAcross * tilesDown);
  const int firstRow = inBatch / tilesAcross * tileRows, firstColumn = inBatch % tilesAcross * tileColumns;
  const unsigned steps = (k + depth - 1) / depth;
  if (threadIdx.x < stages) {
    setGate(full + threadIdx.x, 1);
    setGate(free + threadIdx.x, consumers / 32);
  }
  publishGates();
  __syncthreads();
  if (threadIdx.x >= consumers) {
    if (threadIdx.x > consumers) return;
    for (unsigned step = 0; step < steps; step++) {
      const unsigned stage = step % stages;
      if (step >= stages) awaitGate(free + stage, (step / stages - 1) % 2);
      expectAt(full + stage, Left::bytes + Right::bytes);
      unsigned char* const tile = tiles + stage * (Left::bytes + Right::bytes);
      Left::bring(tile, a, firstRow, step * depth, aBatch == 0 ? 0 : product, full + stage);
      Right::bring(tile + Left::bytes, b, firstColumn, step * depth, bBatch == 0 ? 0 : product, full + stage);
    }
    return;
  }

  const unsigned group = threadIdx.x / 128, top = group / groupsAcross * (64 * down), side = group % groupsAcross * width;
  float sums[down][width / 2];
#pragma unroll
  for (unsigned i = 0; i < down; i++) {
#pragma unroll
    for (unsigned e = 0; e < width / 2; e++) {
      sums[i][e] = 0;
      settle(sums[i][e]);
    }
  }
  for (unsigned step = 0; step < steps; step++) {
    const unsigned stage = step % stages;
    awaitGate(full + stage, step / stages % 2);
    const unsigned char *left = tiles + stage * (Left::bytes + Right::bytes), *right = left + Left::bytes;
    if constexpr (Right::isTurned) {
      unsigned char* const to = turned + step % ${turnedTiles} * Right::bytes;
      Right::turn(to, right);
      right = to;
      publishStores();
      meetThreads(1, consumers);
    }
    beginProducts();
#pragma unroll
    for (unsigned part = 0; part < 4; part++) {
#pragma unroll
      for (unsigned i = 0; i < down; i++) {
        multiplyTiles<Element, width, Left::liesAlong, Right::liesAlong>(
            sums[i], Left::at(left, top + 64 * i, part), Right::at(right, side, part));
      }
    }
    endProducts();
    // With the last step's products made, its tile is free.
    awaitProducts<1>();
    if (step > 0 && threadIdx.x % 32 == 0) passGate(free + (step - 1) % stages);
  }
  awaitProducts<0>();
  meetThreads(1, consumers);`;

/**
 * Each warp turns its own 16 rows through shared memory, so that a thread has neighbours of a row to store: the same ones of each.
 * What a finish reads of some rows is on its way before the first of them is stored; the compiler doesn't know that the two
 * are apart.
 */
function storing(finish: PrintedFinish | undefined, hasBias: boolean): string {
  const biases = "*reinterpret_cast<const float4*>(bias + product * biasBatch + column)";
  const plain = `
        *reinterpret_cast<float4*>(c + product * cBatch + (long long)row * cStride + column) =
            make_float4(values[0], values[1], values[2], values[3]);`;
  const fetching = `
      ${finish?.held}
#pragma unroll
      for (unsigned next = 0; next < rowsAtOnce; next++) {
        const int row = firstLine + (int)(begin + next * apart);
        const long long place = (long long)(row < m ? row : m - 1) * n + column;
        ${finish?.fetches}
      }`;
  return `
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  constexpr unsigned stride = width + 8, perRow = width / pack, apart = 32 / perRow, rowsAtOnce = 4;
  float* const own = reinterpret_cast<float*>(tiles) + warp * (16 * stride);
  const unsigned along = lane % perRow * pack;
  const int column = firstColumn + side + along;
  const float4 biases = ${hasBias ? `column < n ? ${biases} : ` : ""}make_float4(0, 0, 0, 0);
#pragma unroll
  for (unsigned i = 0; i < down; i++) {
    __syncwarp();
#pragma unroll
    for (unsigned e = 0; e < width / 2; e += 2) {
      float* const to = own + (lane / 4 + e / 2 % 2 * 8) * stride + e / 4 * 8 + lane % 4 * 2;
      *reinterpret_cast<float2*>(to) = make_float2(sums[i][e], sums[i][e + 1]);
    }
    __syncwarp();
    const int firstLine = firstRow + top + 64 * i + warp % 4 * 16 + lane / perRow;
    if (column >= n) continue;
#pragma unroll 1
    for (unsigned begin = 0; begin < 16; begin += rowsAtOnce * apart) {${finish?.fetches ? fetching : ""}
#pragma unroll
      for (unsigned next = 0; next < rowsAtOnce; next++) {
        const unsigned line = begin + next * apart;
        const int row = firstLine + (int)line;
        if (row >= m) break;
        const float4 four = *reinterpret_cast<const float4*>(own + (lane / perRow + line) * stride + along);
        const float values[pack] = {four.x + biases.x, four.y + biases.y, four.z + biases.z, four.w + biases.w};
        ${finish ? "const long long place = (long long)row * n + column;" : ""}
${finish ? `${finish.keepsResult ? plain : ""}\n${finish.lines}` : plain}
      }
    }
  }`;
}

/** One kernel for products of one form, with what each does to its C; or for one product and its finish. */
export function warpgroupSource(
  form: WarpgroupForm,
  accesses: readonly AccessToC[],
  finish?: Finish,
): KernelSource {
  const { element, tile, isAlong, hasBias } = form;
  const { rows, columns, down, across } = tile;
  const { name } = elements[element];
  const [consumers, width] = [128 * down * across, columns / across];
  const threads = consumers + 32;
  const printed = finish && printFinish(finish);
  const turnedBytes = element === "tf32" && !isAlong.b ? turnedTiles * columns * 128 : 0;
  const stageBytes = (rows + columns) * 128;
  const stages = Math.min(tile.stages, Math.floor((mostTileBytes - turnedBytes) / stageBytes));
  const tileBytes = stages * stageBytes + turnedBytes;
  const sharedBytes = 1024 + Math.max(tileBytes + 2 * stages * 8, (consumers / 32) * 16 * (width + 8) * 4);
  const declarations = `
${printed?.declarations ?? ""}${instructionsFor(element, width)}
typedef ${name} Element;
static constexpr unsigned tileRows = ${rows}, tileColumns = ${columns}, stages = ${stages};
static constexpr unsigned groupsAcross = ${across}, consumers = ${consumers};
// The sums of a warpgroup: so many pieces of 64 rows, and so many columns. A thread stores so many neighbours at a time.
static constexpr unsigned down = ${rows / 64 / down}, width = ${width}, pack = 4;
${sides}
typedef Side<${isAlong.a}, tileRows> Left;
typedef Side<${isAlong.b}, tileColumns> Right;`;
  return cudaKernel({
    ...{ name: `product_${element}_warpgroup`, elements: "float", threads, onlyFor: warpgroupCapability },
    ...{ parameters: warpgroupParameters(form, accesses, finish), sharedBytes, declarations },
    pointers: printed?.pointers ?? {},
    maps: mapsOf(form, accesses.length),
    body: `${chooseProduct(localsFor(form, finish), accesses.length)}  launchedMemory(launched, ${sharedBytes});${multiplication}\n${storing(printed, hasBias)}`,
  });
}

/** Operands are maps, of which boxes of 128 bytes across are brought. */
function mapsOf({ element, tile, isAlong }: WarpgroupForm, products: number) {
  const across = 128 / (element === "tf32" ? 4 : 2);
  const mapOf = (side: "a" | "b", size: string, rows: number, index: number) => {
    const [columns, lines] = isAlong[side] ? ["k", size] : [size, "k"];
    return {
      dtype: element === "tf32" ? ("f32" as const) : element,
      ...{ columns: `${columns}${index}`, rows: `${lines}${index}`, rowStride: `${side}Stride${index}` },
      ...{ matrices: `batch${index}`, matrixStride: `${side}Batch${index}` },
      box: { columns: across, rows: isAlong[side] ? rows : across },
    };
  };
  const maps: Record<string, ReturnType<typeof mapOf>> = {};
  for (let index = 0; index < products; index++) {
    maps[`a${index}`] = mapOf("a", "m", tile.rows, index);
    maps[`b${index}`] = mapOf("b", "n", tile.columns, index);
  }
  return maps;
}

/** What a block knows of its product. */
function localsFor({ hasBias }: WarpgroupForm, finish?: Finish): readonly ProductLocal[] {
  return [
    ...localsOf("const MatrixMap*", ["a", "b"]).map((local) => ({ ...local, isAddress: true })),
    ...localsOf("const float*", hasBias ? ["bias"] : []),
    ...localsOf("float*", storesResult(finish) ? ["c"] : []),
    ...localsOf("int", [...figuresFor(finish), ...(hasBias ? ["biasBatch"] : [])]),
  ];
}
