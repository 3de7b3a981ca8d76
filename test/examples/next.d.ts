// What examples/nextjs uses of Next.js 16 and React 19, which are too large to be installed with the rest.

declare module "next" {
  export interface NextConfig {
    serverExternalPackages?: string[];
  }
}

declare module "react" {
  export type ReactNode = string | number | boolean | object | null | undefined;
  export function useActionState<State>(
    action: (before: Awaited<State>, form: FormData) => State | Promise<State>,
    initial: Awaited<State>,
  ): [state: Awaited<State>, send: (form: FormData) => void, isPending: boolean];
}

declare module "react/jsx-runtime" {
  import type { ReactNode } from "react";

  interface Attributes {
    children?: ReactNode;
  }
  export namespace JSX {
    type Element = ReactNode;
    interface ElementChildrenAttribute {
      children: unknown;
    }
    interface IntrinsicElements {
      html: Attributes & { lang?: string };
      body: Attributes;
      form: Attributes & { action?: (form: FormData) => unknown };
      label: Attributes;
      input: { name?: string; required?: boolean };
      button: Attributes & { type?: "submit"; disabled?: boolean };
      output: Attributes;
    }
  }
}
