/**
 * A two-level segregated fit (TLSF) allocator over a range of units. Free blocks are in lists by size class and blocks
 * know their neighbours. Allocating and freeing take constant time, and adjacent free blocks always merge. It knows
 * nothing of memory, tensors or bytes; its handles are block indices ("slots").
 */

/** A class spans 1/16 of a power of two; sizes below 16 units have a class each. */
const subclassBits = 4;
const subclasses = 1 << subclassBits;
const levels = 32 - subclassBits;

/** Number of blocks of the request's class to try before a larger class, where the first block always fits. */
const maxTries = 8;

const none = -1;

interface Block {
  offset: number;
  size: number;
  isFree: boolean;
  /** Neighbours by address. */
  before: number;
  after: number;
  /** Neighbours in the list of the size class. */
  previous: number;
  next: number;
}

export class TlsfAllocator {
  readonly size: number;
  readonly #blocks: Block[] = [];
  readonly #unusedSlots: number[] = [];
  /** Bit l is set if some class of level l has a free block. */
  #levelBits = 0;
  readonly #classBits = new Int32Array(levels);
  readonly #heads = new Int32Array(levels * subclasses).fill(none);
  #last: number;

  constructor(size: number) {
    this.size = size;
    this.#last = this.#newBlock(0, size, none, none);
    this.#insert(this.#last);
  }

  /** Allocates `size` units and returns the slot, or -1 if no free block is large enough. */
  allocate(size: number): number {
    const slot = this.#find(size);
    if (slot === none) return none;
    const block = this.#at(slot);
    this.#remove(slot);
    if (block.size > size) {
      const rest = this.#newBlock(block.offset + size, block.size - size, slot, block.after);
      if (block.after === none) this.#last = rest;
      else this.#at(block.after).before = rest;
      block.after = rest;
      block.size = size;
      this.#insert(rest);
    }
    return slot;
  }

  /** Frees a block and merges it with free neighbours. */
  free(slot: number): void {
    let merged = slot;
    const block = this.#at(slot);
    if (block.before !== none && this.#at(block.before).isFree) {
      merged = block.before;
      this.#remove(merged);
      this.#absorb(merged, slot);
    }
    const { after } = this.#at(merged);
    if (after !== none && this.#at(after).isFree) {
      this.#remove(after);
      this.#absorb(merged, after);
    }
    this.#insert(merged);
  }

  slotOffset(slot: number): number {
    return this.#at(slot).offset;
  }

  slotSize(slot: number): number {
    return this.#at(slot).size;
  }

  /** The end of the highest allocated block. */
  get top(): number {
    const last = this.#at(this.#last);
    return last.isFree ? last.offset : this.size;
  }

  /** The largest size that `allocate` is sure to provide. */
  get largestFree(): number {
    if (this.#levelBits === 0) return 0;
    const level = 31 - Math.clz32(this.#levelBits);
    const subclass = 31 - Math.clz32(this.#classBits[level] ?? 0);
    let largest = 0;
    for (
      let slot = this.#heads[level * subclasses + subclass] ?? none;
      slot !== none;
      slot = this.#at(slot).next
    ) {
      largest = Math.max(largest, this.#at(slot).size);
    }
    return largest;
  }

  #find(size: number): number {
    const sizeClass = findClass(size);
    let slot = this.#heads[sizeClass] ?? none;
    for (let tried = 0; slot !== none && tried < maxTries; tried++) {
      const block = this.#at(slot);
      if (block.size >= size) return slot;
      slot = block.next;
    }
    const larger = this.#firstClassFrom(sizeClass + 1);
    if (larger !== none) return this.#heads[larger] ?? none;
    // The last resort before failing: the rest of the request's class.
    while (slot !== none && this.#at(slot).size < size) slot = this.#at(slot).next;
    return slot;
  }

  /** The smallest class, from this one up, with a free block. */
  #firstClassFrom(first: number): number {
    const level = first >> subclassBits;
    if (level >= levels) return none;
    const here = (this.#classBits[level] ?? 0) & (-1 << (first & (subclasses - 1)));
    if (here !== 0) return (level << subclassBits) + lowestBit(here);
    const above = this.#levelBits & (level === 31 ? 0 : -1 << (level + 1));
    if (above === 0) return none;
    const next = lowestBit(above);
    return (next << subclassBits) + lowestBit(this.#classBits[next] ?? 0);
  }

  #insert(slot: number): void {
    const block = this.#at(slot);
    const list = findClass(block.size);
    const head = this.#heads[list] ?? none;
    block.isFree = true;
    block.previous = none;
    block.next = head;
    if (head !== none) this.#at(head).previous = slot;
    this.#heads[list] = slot;
    const level = list >> subclassBits;
    this.#levelBits |= 1 << level;
    this.#classBits[level] = (this.#classBits[level] ?? 0) | (1 << (list & (subclasses - 1)));
  }

  #remove(slot: number): void {
    const block = this.#at(slot);
    const list = findClass(block.size);
    block.isFree = false;
    if (block.next !== none) this.#at(block.next).previous = block.previous;
    if (block.previous !== none) this.#at(block.previous).next = block.next;
    else this.#heads[list] = block.next;
    if (this.#heads[list] !== none) return;
    const level = list >> subclassBits;
    const classes = (this.#classBits[level] ?? 0) & ~(1 << (list & (subclasses - 1)));
    this.#classBits[level] = classes;
    if (classes === 0) this.#levelBits &= ~(1 << level);
  }

  /** Extends `into` over its right neighbour, whose slot becomes unused. */
  #absorb(into: number, neighbour: number): void {
    const block = this.#at(into);
    const { size, after } = this.#at(neighbour);
    block.size += size;
    block.after = after;
    if (after === none) this.#last = into;
    else this.#at(after).before = into;
    this.#unusedSlots.push(neighbour);
  }

  #newBlock(offset: number, size: number, before: number, after: number): number {
    const slot = this.#unusedSlots.pop();
    if (slot === undefined) {
      this.#blocks.push({ offset, size, isFree: false, before, after, previous: none, next: none });
      return this.#blocks.length - 1;
    }
    const block = this.#at(slot);
    block.offset = offset;
    block.size = size;
    block.before = before;
    block.after = after;
    return slot;
  }

  #at(slot: number): Block {
    const block = this.#blocks[slot];
    if (block === undefined) throw new RangeError(`no block ${slot}`);
    return block;
  }
}

function lowestBit(bits: number): number {
  return 31 - Math.clz32(bits & -bits);
}

/** The class of blocks of this size: level by power of two, subclass by the next four bits. */
function findClass(size: number): number {
  if (size < subclasses) return size;
  const power = 31 - Math.clz32(size);
  const subclass = (size >>> (power - subclassBits)) & (subclasses - 1);
  return ((power - subclassBits + 1) << subclassBits) + subclass;
}
