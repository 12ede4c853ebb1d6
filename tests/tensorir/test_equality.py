"""Structural equality: what counts, what does not, what corresponds."""

from tensorir import te
from tensorir.dtypes import float32, int32
from tensorir.equality import structural_equal, structural_hash
from tensorir.expr import Var, const, floordiv, minimum
from tensorir.stmt import For, Store


def both(a, b, **options):
    """Equality, checked against the hash."""
    same = structural_equal(a, b, **options)
    if same:
        assert structural_hash(a, **options) == structural_hash(b, **options)
    else:
        assert structural_hash(a, **options) != structural_hash(b, **options)
    assert structural_equal(b, a, **options) is same
    return same


def test_expressions() -> None:
    i, j = Var("i"), Var("j")
    assert both(i * 4 + j, i * 4 + j)
    assert not both(i * 4 + j, j + i * 4)
    assert not both(i * 4 + j, i * 5 + j)
    assert not both(floordiv(i, 4), i % 4)
    assert not both(Var("i"), Var("i"))
    assert both(Var("i"), Var("k"), map_free=True)
    assert not both(i + j, i + i, map_free=True)
    assert not both(i + i, i + j, map_free=True)
    assert not both(Var("i"), Var("i", int32), map_free=True)


def test_constants_by_bits() -> None:
    assert both(const(float("nan")), const(float("nan")))
    assert not both(const(0.0), const(-0.0))
    assert not both(const(1), const(True))
    assert not both(const(1), const(1, int32))


def test_functions_map_their_own_names() -> None:
    def program(name: str, factor: float, width: int = 8) -> object:
        a = te.placeholder((width, 4), name=f"A{name}")
        k = te.reduce_axis(4, f"k{name}")
        b = te.compute((width,), lambda i: te.sum(a[i, k] * factor, axis=k), name=f"B{name}")
        c = te.compute((width,), lambda i: b[i] + a[i, 0], name=f"C{name}")
        return te.create_func([a, c], name)

    assert both(program("x", 2.0), program("y", 2.0))
    assert not both(program("x", 2.0), program("y", 3.0))
    assert not both(program("x", 2.0), program("x", 2.0, 9))


def test_reductions_bind_their_axes() -> None:
    a = te.placeholder((8, 4), name="A")
    i = Var("i")

    def total() -> object:
        k = te.reduce_axis(4, "k")
        return te.sum(a[i, k], axis=k)

    assert both(total(), total())


def test_sibling_loops_may_share_a_variable() -> None:
    a = te.placeholder((8,), name="A")
    i, j, k = Var("i"), Var("j"), Var("k")

    def loop(v):
        return For(v, const(0), const(8), "serial", Store(a, (v,), const(1.0)))

    from tensorir.stmt import seq

    assert both(seq(loop(i), loop(i)), seq(loop(j), loop(k)))
    nested_ok = For(i, const(0), const(8), "serial", loop(j))
    shadowed = For(i, const(0), const(8), "serial", loop(i))
    assert structural_equal(nested_ok, shadowed)
    assert not structural_equal(
        For(i, const(0), const(8), "serial", For(j, const(0), const(8), "serial", Store(a, (i,), const(1.0)))),
        For(i, const(0), const(8), "serial", For(j, const(0), const(8), "serial", Store(a, (j,), const(1.0)))),
    )


def test_long_sums_do_not_recurse() -> None:
    a = te.placeholder((8,), float32, name="A")

    def long_sum():
        e = a[0]
        for n in range(5000):
            e = e + a[n % 8]
        return e

    assert both(long_sum(), long_sum())


def test_shared_nodes_are_visited_once() -> None:
    i = Var("i")

    def tower():
        e = i + 1
        for _ in range(200):
            e = minimum(e, e * 2)
        return e

    assert both(tower(), tower())
