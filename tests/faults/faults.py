"""The seeded faults: mistakes that compilers of this kind have made, each with the checks that must find it."""

from __future__ import annotations

from tensorir import dtypes
from tests.faults import graphs as g
from tests.faults import programs as p
from tests.faults.fault import Fault
from tests.graphir import test_arena, test_passes

_PASSES = "tensorir.passes"
_LLVM = "targets.llvm"

SCHEDULE = (
    Fault(
        "the guard of a split that does not divide is forgotten",
        "schedule.replay:_split",
        "if not exact:",
        "if False:",
        (p.tails,),
    ),
    Fault("a split rounds the outer extent down", "schedule.replay:ceildiv", "-(-x // y)", "x // y", (p.tails,)),
    Fault(
        "the region of two reads is that of one",
        "schedule.region:union_ranges",
        "[(a.begin, a.extent), (b.begin, b.extent)]",
        "[(a.begin, a.extent)]",
        (p.stencil,),
    ),
    Fault(
        "the region of a scaled index is one too small",
        "tensorir.arith.regions:index_range",
        "analyzer.shift(analyzer.plus(last, first, -1), 1)",
        "analyzer.plus(last, first, -1)",
        (p.stencil,),
    ),
    Fault(
        "a region that leaves its tensor is not guarded",
        "schedule.analysis:_place",
        "        if leaves:",
        "        if False:",
        (p.symbolic_tails, p.stencil),
    ),
    Fault(
        "the init of an empty or split reduction stays in the wrong place",
        "schedule.program:_init_nest",
        'if loop.kind == "spatial"]',
        'if loop.kind == "spatial"][:1]',
        (p.matmul,),
    ),
    Fault(
        "fused loops are taken apart by the wrong extent",
        "schedule.replay:_finish",
        "floordiv(fused, relation.extent)",
        "floordiv(fused, relation.outer_extent)",
        (p.fused_loops,),
    ),
    Fault(
        "a float reduction changes its order and does not say so",
        "schedule.primitives.reorder:reorder",
        "if changed and reduction is not None and any(s.dtype.is_float for s in reduction.sources):",
        "if False:",
        (p.reassociation_is_said,),
    ),
    Fault(
        "a stage behind a loop reads what the loop has not made",
        "schedule.ready:_holds",
        "return low and high",
        "return True",
        (p.behind_a_row,),
    ),
    Fault(
        "partial results of a reduction forget the guard of its split",
        "schedule.primitives.rfactor:_partial_op",
        'if g.kind == "reduce"',
        "if False",
        (p.factored,),
    ),
    Fault(
        "the next tile is filled where this one is read",
        "schedule.program:Builder._double",
        "floormod(loop, 2)",
        "floormod(loop, 1)",
        (p.two_copies,),
    ),
    Fault(
        "a block of loops loses the init of its reduction",
        "schedule.unit:unit_block",
        "body, init = seq(init, body), None",
        "body, init = body, None",
        (p.blocks_of_loops,),
    ),
    Fault(
        "tensorize takes another operation for the intrinsic's",
        "schedule.intrinsic:_Matcher._compare",
        "if not same:",
        "if False:",
        (p.tensorized,),
    ),
    Fault(
        "a scan begins one step early",
        "schedule.analysis:_first_step",
        "return host.stage.op.steps.begin",
        "return host.stage.op.steps.begin - 1",
        (p.steps,),
    ),
    Fault(
        "the unsigned bytes of a dot product lose their highest bit",
        "targets.llvm.arithmetic:_dot4_by_bytes",
        "literal(255, dtype)",
        "literal(127, dtype)",
        (p.dots,),
    ),
)

LOWERING = (
    Fault(
        "the guard of a block is dropped", f"{_PASSES}.lower_blocks:_lower", "if not needed:", "if True:", (p.tails,)
    ),
    Fault(
        "the init of a reduction is forgotten",
        f"{_PASSES}.lower_blocks:_lower",
        "if block.init is not None:",
        "if False:",
        (p.fused_reduction,),
    ),
    Fault(
        "the init moved out of a reduction is lost",
        f"{_PASSES}.decompose_reductions:decompose_reductions",
        "return seq(*inits, loop) if inits else loop",
        "return loop",
        (p.matmul,),
    ),
    Fault(
        "a compacted buffer is one element too small",
        f"{_PASSES}.compact_buffers:_size",
        "high.minus(low).shifted(1)",
        "high.minus(low)",
        (p.stencil,),
    ),
    Fault(
        "a compacted buffer starts where the first access alone does",
        f"{_PASSES}.compact_buffers:_pick",
        "return a if low else b",
        "return a",
        (p.compaction,),
    ),
    Fault(
        "memory that carries a value between iterations is made anew in each",
        f"{_PASSES}.sink_allocations:_independent",
        """if loop.kind == "vectorized" or any(a.whole for a in accesses):
        return False""",
        """if True:
        return True""",
        (p.carried,),
    ),
    Fault(
        "the first part of a partitioned loop is off by one",
        f"{_PASSES}.partition_loops:_Partition._parts",
        "edges = [first, *points, end]",
        "edges = [first + 1, *points, end]",
        (p.padded,),
    ),
    Fault(
        "the last part of a symbolic loop is lost",
        f"{_PASSES}.partition_loops:_Partition._symbolic_parts",
        "parts.append(_Part(high, self._distance(high, end)))",
        "pass",
        (p.padded, p.symbolic_tails),
    ),
    Fault(
        "a parallel loop takes its unguarded copy too often",
        f"{_PASSES}.partition_loops:_Partition._two_versions",
        "return If(conjunction(chosen), main",
        "return If(conjunction(chosen[:1]), main",
        (p.padded,),
    ),
    Fault(
        "a choice is decided by its first condition alone",
        f"{_PASSES}.partition_loops:_Partition._expr",
        "if not needed:",
        "if len(needed) < 2:",
        (p.padded,),
    ),
    Fault(
        "a loop is cut one step short at its end",
        f"{_PASSES}.tighten_loops:loop_limits",
        "return [], [quotient.shifted(1)]",
        "return [], [quotient]",
        (p.tails, p.padded),
    ),
    Fault(
        "a loop is cut one step late at its begin",
        f"{_PASSES}.tighten_loops:loop_limits",
        "return [quotient.scaled(-1)], []",
        "return [quotient.scaled(-1).shifted(1)], []",
        (p.padded_taps,),
    ),
    Fault(
        "row-major indices take their strides the wrong way round",
        f"{_PASSES}.flatten:flatten",
        "zip(indices, strides[buffer], strict=True)",
        "zip(indices, strides[buffer][::-1], strict=True)",
        (p.transposed,),
    ),
    Fault(
        "the mask of a store is lost",
        f"{_PASSES}.vectorize:_Lanes.store",
        "predicate = self.mask if s.predicate is None",
        "predicate = None if s.predicate is None",
        (p.tails, p.branches),
    ),
    Fault(
        "the mask of an else branch is not the opposite",
        f"{_PASSES}.vectorize:_Lanes.branch",
        "self._under(opposite, Not(vector, vector.dtype), s.otherwise)",
        "self._under(opposite, vector, s.otherwise)",
        (p.branches,),
    ),
    Fault(
        "vector code runs where its guard holds in one lane",
        f"{_PASSES}.vectorize:_Lanes._main_and_tail",
        "frozenset([self.var]), low=True)",
        "frozenset([self.var]), low=False)",
        (p.tails, p.branches),
    ),
    Fault(
        "the scalar tail ignores its guard",
        f"{_PASSES}.vectorize:_Lanes._main_and_tail",
        "scalar = self._serial(s)",
        "scalar = self._serial(s.then)",
        (p.tails, p.branches),
    ),
    Fault(
        "a strided vector is read as a contiguous one",
        f"{_PASSES}.vectorize:_Lanes._ramp",
        "const(stride, e.dtype)",
        "const(1, e.dtype)",
        (p.strided,),
    ),
    Fault(
        "a multiply-add is fused by a pass",
        f"{_PASSES}.vectorize:_Lanes._operator",
        "    a, b = self._wide(a), self._wide(b)\n",
        "    a, b = self._wide(a), self._wide(b)\n"
        "    if type(e).__name__ == 'Add' and type(a).__name__ == 'Mul' and a.dtype.is_float:\n"
        "        return Fma(a.a, a.b, b, a.dtype)\n",
        (p.products_and_sums,),
    ),
    Fault(
        "unrolling skips the last copy",
        f"{_PASSES}.unroll:_Unroller._unrolled",
        "range(int(extent.value))",
        "range(int(extent.value) - 1)",
        (p.tails,),
    ),
    Fault(
        "unrolling drops a predicate it does not know",
        f"{_PASSES}.unroll:_Unroller._store",
        "if verdict is True:",
        "if verdict is not False:",
        (p.masked_store_of_a_mask,),
    ),
    Fault(
        "a value that changes in a loop is hoisted out of it",
        f"{_PASSES}.hoist_invariants:_name_invariants",
        "free[top], costly[top] = top in bound, False",
        "free[top], costly[top] = True, False",
        (p.invariants,),
    ),
    Fault(
        "an index is narrowed that does not fit",
        f"{_PASSES}.narrow_indices:_in_range",
        "high < 1 << 31",
        "high < 1 << 40",
        (p.wide_indices,),
    ),
    Fault(
        "a 16-bit product is not rounded before it is added to",
        f"{_PASSES}.legalize_half:_in_float32",
        "return cast(_with_dtype(result, wide), e.dtype)",
        """from tensorir.expr import Cast
    inner = (c.value if isinstance(c, Cast) and isinstance(c.value, Cast) else c for c in children(result))
    inner = tuple(c.value if isinstance(c, Cast) else c for c in inner)
    result = with_children(result, tuple(cast(c, wide) for c in inner))
    return cast(_with_dtype(result, wide), e.dtype)""",
        (p.half_rounding,),
    ),
)

ARITHMETIC = (
    Fault(
        "a quotient is decided though its numerator crosses a block",
        f"{_PASSES}.linear:_floordiv",
        "low // divisor == high // divisor",
        "low // divisor + 1 >= high // divisor",
        (p.simplifier,),
    ),
    Fault(
        "a remainder is decided though its numerator crosses a block",
        f"{_PASSES}.linear:_floormod",
        "low // divisor == high // divisor",
        "low // divisor + 1 >= high // divisor",
        (p.simplifier,),
    ),
    Fault(
        "a strict comparison is taken for a weak one",
        f"{_PASSES}.linear:IndexScope.margin",
        "difference.shifted(-1) if isinstance(condition, LT) else difference",
        "difference",
        (p.simplifier, p.tails),
    ),
    Fault(
        "a quotient is bounded from the wrong side",
        f"{_PASSES}.linear:IndexScope._eliminate",
        "inner if c < 0 else inner.shifted(1 - divisor)",
        "inner",
        (p.symbolic_facts,),
    ),
    Fault(
        "a fact about a quotient is made too strong",
        f"{_PASSES}.linear:IndexScope._without_quotients",
        "inner if c > 0 else inner.shifted(1 - divisor)",
        "inner.shifted(1 - divisor) if c > 0 else inner",
        (p.symbolic_facts,),
    ),
    Fault(
        "a product is bounded by a factor that may be negative",
        f"{_PASSES}.linear:IndexScope._product_bound",
        "if least is None or least < 0:",
        "if False:",
        (p.symbolic_facts, p.signed_products),
    ),
    Fault(
        "a variable is bounded by its extent, not its last value",
        f"{_PASSES}.linear:IndexScope.bind",
        "low.plus(size).shifted(-1)",
        "low.plus(size).shifted(-2)",
        (p.simplifier,),
    ),
    Fault(
        "the scheduler divides a sum term by term",
        "tensorir.arith.canonical:Forms._divide_rest",
        "if lo is not None and hi is not None and lo // c == hi // c:",
        "if lo is not None and hi is not None:",
        (p.simplifier,),
    ),
    Fault(
        "a remainder is decided by one end of its numerator",
        "tensorir.arith.canonical:Forms.floor_modulo",
        "lo // c == hi // c",
        "lo // c <= hi // c",
        (p.simplifier,),
    ),
    Fault(
        "an inequality is proved that is one off",
        "tensorir.arith.prove:Prover.le0",
        "if hi is not None and hi <= 0:",
        "if hi is not None and hi <= 1:",
        (p.simplifier,),
    ),
    Fault(
        "a remainder of a ramp is a ramp though lanes wrap",
        "tensorir.arith.vectors:_lanewise",
        "0 <= lo + min(reach, 0) and hi + max(reach, 0) < c",
        "0 <= lo",
        (p.lanes_that_cross_a_block,),
    ),
)

CODE = (
    Fault(
        "unsigned arithmetic is said not to wrap",
        f"{_LLVM}.arithmetic:binary",
        'return w.op(f"{table[op]} {',
        """return w.op(f"{table[op]}{' nuw' if dtype.kind == 'uint' and op == 'sub' else ''} {""",
        (p.contraction_of_text, p.unsigned_wrap),
    ),
    Fault(
        "float arithmetic may be contracted",
        f"{_LLVM}.arithmetic:binary",
        'return w.op(f"{table[op]} {',
        """return w.op(f"{table[op]}{' contract' if dtype.is_float else ''} {""",
        (p.contraction_of_text,),
    ),
    Fault(
        "a fused multiply-add rounds twice",
        f"{_LLVM}.arithmetic:fused_multiply_add",
        "    if target.fma:\n",
        """    if target.fma:
        return binary(w, "add", binary(w, "mul", a, b, dtype, target), c, dtype, target)
""",
        (p.matmul,),
    ),
    Fault(
        "min and max lose the NaN of their first operand",
        f"{_LLVM}.arithmetic:extremum",
        "return _select(w, is_nan, t, a, result, dtype)",
        "return result",
        (p.operations(dtypes.float32, 8),),
    ),
    Fault(
        "min and max give the other one of two zeros",
        f"{_LLVM}.arithmetic:extremum",
        'order = "lt" if op == "min" else "gt"',
        'order = "le" if op == "min" else "ge"',
        (p.operations(dtypes.float32, 1),),
    ),
    Fault(
        "floor and truncating division are swapped",
        f"{_LLVM}.arithmetic:divide",
        'op.startswith("floor")',
        'op.startswith("trunc")',
        (p.divisions,),
    ),
    Fault(
        "a truncating division by a power of two is a shift",
        f"{_LLVM}.arithmetic:divide",
        '(floor or dtype.kind == "uint")',
        "True",
        (p.divisions,),
    ),
    Fault(
        "a shift by the whole width is not guarded",
        f"{_LLVM}.arithmetic:shift",
        "if amount is not None and 0 <= amount < dtype.bits:",
        "if amount is not None:",
        (p.operations(dtypes.int32, 8),),
    ),
    Fault(
        "an ordered comparison of unsigned numbers is signed",
        f"{_LLVM}.arithmetic:compare",
        "{'s' if dtype.kind == 'int' else 'u'}",
        "s",
        (p.operations(dtypes.uint8, 8),),
    ),
    Fault(
        "a float beyond an integer type saturates",
        f"{_LLVM}.casts:float_to_integer",
        "    if result.bits < 64:\n",
        "    if result.bits < 64:\n"
        "        most = literal(result.max_value, dtypes.int64.with_lanes(source.lanes))\n"
        "        over = w.op(f'icmp sgt {wide_type} {wide}, {most}')\n"
        "        wide = w.op(f'select {bits} {over}, {wide_type} {most}, {wide_type} {wide}')\n",
        (p.casts(dtypes.float32, 16),),
    ),
    Fault(
        "a signed integer is widened without its sign",
        f"{_LLVM}.casts:_integer_to_integer",
        '"sext" if source.kind == "int" else "zext"',
        '"zext"',
        (p.casts(dtypes.int8, 16),),
    ),
    Fault(
        "bfloat16 is cut off, not rounded",
        f"{_LLVM}.casts:_to_bfloat16",
        "_int(0x7FFF, word)",
        "_int(0, word)",
        (p.casts(dtypes.float32, 16),),
    ),
    Fault(
        "bfloat16 rounds half up, not half to even",
        f"{_LLVM}.casts:_to_bfloat16",
        "_int(0x7FFF, word)}')}, {odd}",
        "_int(0x8000, word)}')}, {_int(0, word)}",
        (p.bfloat16_ties,),
    ),
    Fault(
        "a scalar store ignores its predicate",
        f"{_LLVM}.statements:_store_scalar",
        "if s.predicate is not None and not (",
        "if False and not (",
        (p.masked_store_of_a_mask,),
    ),
    Fault(
        "a vector store ignores its mask",
        f"{_LLVM}.statements:_store",
        "mask = None if s.predicate is None else x.mask(s.predicate, lanes)",
        "mask = None",
        (p.tails, p.branches),
    ),
    Fault(
        "a masked load gives what lies in memory",
        f"{_LLVM}.expressions:_load",
        "mask = None if e.predicate is None else x.mask(e.predicate, e.dtype.lanes)",
        "mask = None",
        (p.masked_loads,),
    ),
    Fault(
        "a parallel loop stops one step early",
        f"{_LLVM}.statements:_parallel_body",
        "_count(f, s.var, begin, end, False,",
        "_count(f, s.var, begin, f.w.op(f'sub {register_type(s.var.dtype)} {end}, 1'), False,",
        (p.tails,),
    ),
    Fault(
        "a parallel loop ends where its extent says",
        f"{_LLVM}.statements:_parallel",
        'end = w.op(f"add i64 {begin}, {extent}")',
        "end = extent",
        (p.parallel_begin,),
    ),
    Fault(
        "a loop of no steps runs once",
        f"{_LLVM}.statements:_for",
        "never_empty = isinstance(s.extent, ir.Const)",
        "never_empty = True",
        (p.empty_loops,),
    ),
    Fault(
        "a load is shared across a store",
        f"{_LLVM}.statements:FuncEmitter.statement",
        "self.x.end_statement()",
        "pass",
        (p.reuse_of_memory,),
    ),
    Fault(
        "values of one side of a condition are used after it",
        f"{_LLVM}.expressions:_let",
        "    x.push()\n    x.bind(e.var, value)\n    result = yield e.body\n    x.pop()\n",
        "    x.bind(e.var, value)\n    result = yield e.body\n",
        (p.shared_lets,),
    ),
    Fault(
        "a reversed vector is not",
        f"{_LLVM}.expressions:_load_shuffled",
        "range(n - 1, -1, -1)",
        "range(n)",
        (p.strided,),
    ),
    Fault(
        "every second element is taken from the wrong half",
        f"{_LLVM}.expressions:_load_shuffled",
        "n + 2 * lane - (n - 1)",
        "n + 2 * lane - n",
        (p.strided,),
    ),
    Fault(
        "the choices of a select are exchanged when its condition is a vector",
        f"{_LLVM}.arithmetic:select",
        "    t = register_type(dtype)\n",
        "    t = register_type(dtype)\n    a, b = (b, a) if condition_lanes > 1 else (a, b)\n",
        (p.padded, p.vector_selects),
    ),
)

OPERATORS = (
    Fault(
        "padding lanes are not zero",
        "tensorir.relayout:_Relayout.outputs",
        "self._masked(self._physical(substitute(b, mapping)))",
        "self._physical(substitute(b, mapping))",
        (p.packed_layout,),
    ),
)

GRAPHS = (
    Fault(
        "a batch norm is folded without its epsilon",
        "graphir.passes.fold_scales:_Folding.scale_and_shift",
        'self.add("add", [variance, epsilon], node)',
        "variance",
        (g.small_variance,),
    ),
    Fault(
        "the mean of a folded batch norm is added",
        "graphir.passes.fold_scales:_Folding.scale_and_shift",
        'self.add("subtract", [beta, ',
        'self.add("add", [beta, ',
        (g.small_variance,),
    ),
    Fault(
        "two transposes are joined in the wrong order",
        "graphir.passes.simplify:_transposes",
        "joined(transpose_axes(inner), axes)",
        "joined(axes, transpose_axes(inner))",
        (g.transposes,),
    ),
    Fault(
        "x - (-0.0) is taken for x",
        "graphir.passes.simplify:_neutral",
        'if node.op == "subtract" and',
        "if False and",
        (g.signed_zeros, test_passes.test_simplify_neutral_constants_and_what_it_must_leave),
    ),
    Fault(
        "nodes that differ in an attribute are taken for one",
        "graphir.passes.common:common_nodes",
        "tuple((k, attr_text(v)) for k, v in made.attrs)",
        "()",
        (g.same_ops_apart,),
    ),
    Fault(
        "memory is given away while its value is still read (a stale alias)",
        "graphir.plan:_Planner.use",
        "c.end = max(c.end, self.position)",
        "pass",
        (g.live_values,),
    ),
    Fault(
        "a result is written in place of a value that is read later",
        "graphir.plan:_Planner.in_place",
        "last.get(root[x], -1) == index and ",
        "",
        (g.live_values, g.both_operands),
    ),
    Fault(
        "blocks of the arena that meet at one instruction share their bytes",
        "graphir.arena:_place",
        "for j in placed if _meet(blocks[i], blocks[j])",
        "for j in placed if _meet(blocks[i], blocks[j]) and blocks[j].end != blocks[i].start",
        (test_arena.test_blocks_alive_together_never_overlap, g.live_values),
    ),
    Fault(
        "concat takes elements from the wrong offset",
        "topi.ops.shape:concat.compute",
        "point[place] - start",
        "point[place] - start * 0",
        (g.concat,),
    ),
    Fault(
        "a mean over a window counts the padding",
        "topi.ops.pool:_count",
        "if include_pad:",
        "if True:",
        (g.padded_mean,),
    ),
)

FAULTS = (*SCHEDULE, *LOWERING, *ARITHMETIC, *CODE, *OPERATORS, *GRAPHS)
