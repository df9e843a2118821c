/**
 * Adds methods to a class from another file. A tensor has a device, and a device creates tensors: if each class imported the
 * other, their files would form an import cycle. So files above a class add the methods that need other classes, and declare
 * them by module augmentation.
 */

/** Defines all methods and getters of a record on a class, not enumerable, as a class body does. */
export function defineMethods(target: { readonly prototype: object }, methods: object): void {
  for (const [name, descriptor] of Object.entries(Object.getOwnPropertyDescriptors(methods)))
    Object.defineProperty(target.prototype, name, { ...descriptor, enumerable: false });
}
