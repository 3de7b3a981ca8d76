import { PrismaPg } from "@prisma/adapter-pg";
import { fromPrisma } from "../../../src/index.ts";
import type { Driver } from "../../helpers/driver.ts";
import { PrismaClient } from "./generated/client.ts";

export function open(url: string): Driver {
  const prisma = new PrismaClient({ adapter: new PrismaPg({ connectionString: url }) });
  return {
    client: fromPrisma(prisma),
    transaction: (act) => prisma.$transaction((tx) => act(fromPrisma(tx))),
    close: () => prisma.$disconnect(),
  };
}
