"""Kernels by the names that C++ has for them; the mangled names are nvcc's, of templates like these."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from turingas.cubin.pick import matching

NAMES = """_ZN2ns2in5plainEPi _ZN2ns2in1kIfEEvPT_ _ZN2ns2in1kINS0_3TagIiEEEEvPT_ _Z3ptrIPKfEvT_i _Z3ptrIPfEvT_i
_Z3ptrIPiEvT_i _Z3addIlEvPT_i _Z4xaddPi _Z4add2Pi _Z1tI13__nv_bfloat166__halfEvPT_PT0_ _Z1tI6__halfS0_EvPT_PT0_
_Z1tIN2ns2in3TagIfEES3_EvPT_PT0_ _Z3twoIfdLi12ELb1EEvPT_PT0_ _Z3twoIffLin4ELb0EEvPT_PT0_
_Z3twoIffLi4ELb1EEvPT_PT0_ _Z3addI6__halfEvPT_i _Z3addIyEvPT_i _Z3addIfEvPT_i _Z3addIiEvPT_i add_kernel
_ZN51_GLOBAL__N__8d2a5d4b_7_file_cu_3b8bc7ae_48483a_12346hiddenEPf _ZN4sm905firstEv
_Z3varIJifPKiEEvDpT_ _Z3oneILi4EJEEvDpT0_ _ZN2v23in33mulIPKfEEvT_ _ZN2v23in32enILNS0_1EE1EEEvv _Z3refIRiEvP2idIT_E
_Z3refIRKiEvP2idIT_E _Z3refIOiEvP2idIT_E _Z3refIPKiEvP2idIT_E _Z3refIKPiEvP2idIT_E _Z3refIPKPKiEvP2idIT_E
_Z3refIPVfEvP2idIT_E _Z3refIRKN1s1TEEvP2idIT_E _Z3refIPVKiEvP2idIT_E _Z3refIVKiEvP2idIT_E _Z3refIVKPiEvP2idIT_E
_Z3refIKPViEvP2idIT_E _Z3refIPKjEvP2idIT_E _Z3refImEvP2idIT_E _Z3refIrPiEvP2idIT_E _Z3refIrKPKfEvP2idIT_E
_Z3refIPVK3TagIKiEEvP2idIT_E _Z3refIVK3TagIVKiEEvP2idIT_E _Z3refIRVKN1s1TEEvP2idIT_E _Z3refIPVKPVKiEvP2idIT_E
_Z3refI7__half2EvP2idIT_E _Z3refIPaEvP2idIT_E _Z3refI3TagIS0_IiEEEvP2idIT_E _Z3refI3TagIS0_IfEEEvP2idIT_E
_Z3refIN2ns3TwoIfNS1_IhiEEEEEvP2idIT_E _Z2vaIJ3TagIiEVS1_EEvDpP2idIT_E""".split()


@pytest.mark.parametrize(
    "called, name",
    [
        ("add<int>", "_Z3addIiEvPT_i"),
        ("add<unsigned long long>", "_Z3addIyEvPT_i"),
        ("add< half >", "_Z3addI6__halfEvPT_i"),
        ("add<__half>", "_Z3addI6__halfEvPT_i"),
        ("add<int64_t>", "_Z3addIlEvPT_i"),
        ("ptr<int*>", "_Z3ptrIPiEvT_i"),
        ("ptr<const float *>", "_Z3ptrIPKfEvT_i"),
        ("two<float, float, 4, true>", "_Z3twoIffLi4ELb1EEvPT_PT0_"),
        ("two<float,float,-4,false>", "_Z3twoIffLin4ELb0EEvPT_PT0_"),
        ("t<half, half>", "_Z1tI6__halfS0_EvPT_PT0_"),
        ("t<ns::in::Tag<float>, ns::in::Tag<float>>", "_Z1tIN2ns2in3TagIfEES3_EvPT_PT0_"),
        ("k<Tag<int>>", "_ZN2ns2in1kINS0_3TagIiEEEEvPT_"),
        ("ns::in::k<ns::in::Tag<int>>", "_ZN2ns2in1kINS0_3TagIiEEEEvPT_"),
        ("ns::in::plain", "_ZN2ns2in5plainEPi"),
        ("ptr<float*>", "_Z3ptrIPfEvT_i"),
        ("plain", "_ZN2ns2in5plainEPi"),
        ("hidden", "_ZN51_GLOBAL__N__8d2a5d4b_7_file_cu_3b8bc7ae_48483a_12346hiddenEPf"),
        ("sm90::first", "_ZN4sm905firstEv"),
        ("first", "_ZN4sm905firstEv"),
        ("mul<const float*>", "_ZN2v23in33mulIPKfEEvT_"),
        ("v2::in3::mul", "_ZN2v23in33mulIPKfEEvT_"),
        ("var<int, float, const int*>", "_Z3varIJifPKiEEvDpT_"),
        ("one<4>", "_Z3oneILi4EJEEvDpT0_"),
        ("ref<int&>", "_Z3refIRiEvP2idIT_E"),
        ("ref<int const&>", "_Z3refIRKiEvP2idIT_E"),
        ("ref<const int &>", "_Z3refIRKiEvP2idIT_E"),
        ("ref<int&&>", "_Z3refIOiEvP2idIT_E"),
        ("ref<int const*>", "_Z3refIPKiEvP2idIT_E"),
        ("ref<int*const>", "_Z3refIKPiEvP2idIT_E"),
        ("ref<int const* const*>", "_Z3refIPKPKiEvP2idIT_E"),
        ("ref<volatile float*>", "_Z3refIPVfEvP2idIT_E"),
        ("ref<s::T const&>", "_Z3refIRKN1s1TEEvP2idIT_E"),
        ("ref<const volatile int*>", "_Z3refIPVKiEvP2idIT_E"),
        ("ref<volatile const int*>", "_Z3refIPVKiEvP2idIT_E"),
        ("ref<int volatile const*>", "_Z3refIPVKiEvP2idIT_E"),
        ("ref<volatile int const*>", "_Z3refIPVKiEvP2idIT_E"),
        ("ref<const int volatile *>", "_Z3refIPVKiEvP2idIT_E"),
        ("ref<volatile int const>", "_Z3refIVKiEvP2idIT_E"),
        ("ref<int* const volatile>", "_Z3refIVKPiEvP2idIT_E"),
        ("ref<volatile int* const>", "_Z3refIKPViEvP2idIT_E"),
        ("ref<unsigned const int*>", "_Z3refIPKjEvP2idIT_E"),
        ("ref<long unsigned int>", "_Z3refImEvP2idIT_E"),
        ("ref<signed char*>", "_Z3refIPaEvP2idIT_E"),
        ("ref<int* __restrict__>", "_Z3refIrPiEvP2idIT_E"),
        ("ref<float const* const __restrict__>", "_Z3refIrKPKfEvP2idIT_E"),
        ("ref<volatile Tag<int const> const*>", "_Z3refIPVK3TagIKiEEvP2idIT_E"),
        ("ref<const volatile Tag<volatile int const>>", "_Z3refIVK3TagIVKiEEvP2idIT_E"),
        ("ref<s::T const volatile&>", "_Z3refIRVKN1s1TEEvP2idIT_E"),
        ("ref<const volatile int* const volatile*>", "_Z3refIPVKPVKiEvP2idIT_E"),
        ("ref<half2>", "_Z3refI7__half2EvP2idIT_E"),
        ("ref<Tag<Tag<int>>>", "_Z3refI3TagIS0_IiEEEvP2idIT_E"),
        ("ref<Tag<Tag<float> >>", "_Z3refI3TagIS0_IfEEEvP2idIT_E"),
        ("ref<ns::Two<float, ns::Two<unsigned char, int>>>", "_Z3refIN2ns3TwoIfNS1_IhiEEEEEvP2idIT_E"),
        ("va<Tag<int>, volatile Tag<int>>", "_Z2vaIJ3TagIiEVS1_EEvDpP2idIT_E"),
        ("en", "_ZN2v23in32enILNS0_1EE1EEEvv"),
        ("v2::in3::en<(v2::in3::E)1>", "_ZN2v23in32enILNS0_1EE1EEEvv"),
        ("two<float, float, (int)-4, false>", "_Z3twoIffLin4ELb0EEvPT_PT0_"),
        ("xadd", "_Z4xaddPi"),
        ("add_kernel", "add_kernel"),
    ],
)
def test_one(called: str, name: str) -> None:
    assert matching(NAMES, called) == [name]


@pytest.mark.skipif(shutil.which("c++filt") is None, reason="c++filt (binutils) is not installed")
def test_as_they_are_demangled() -> None:
    """What c++filt prints of a name is one that it is found by."""
    shown = subprocess.run(["c++filt", *NAMES], capture_output=True, text=True, check=True).stdout.splitlines()
    found = 0
    for name, text in zip(NAMES, shown, strict=True):
        called = text.removeprefix("void ").rpartition("(")[0] or text
        if not called.startswith("("):  # (anonymous namespace)
            assert name in matching(NAMES, called), called
            found += matching(NAMES, called) == [name]
    assert found > 40


def test_all_of_a_template() -> None:
    assert len(matching(NAMES, "add")) == 5
    assert len(matching(NAMES, "two")) == 3


@pytest.mark.parametrize(
    "called",
    ["dd", "add<", "add<int", "add<int>>", "add<short>", "add<int, int>", "a b", "", "add<a b>", "add<const>", "add<&>",
     "3add", "::add"],
)
def test_none(called: str) -> None:
    assert matching(NAMES, called) == []
