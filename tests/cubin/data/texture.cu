// Textures and surfaces, without CUDA's headers.
typedef unsigned long long Handle;

extern "C" __global__ void fetch(Handle t, float *o, float x, float y) {
    float4 v;
    asm volatile("tex.2d.v4.f32.f32 {%0,%1,%2,%3}, [%4,{%5,%6}];"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                 : "l"(t), "f"(x), "f"(y));
    o[0] = v.x + v.y + v.z + v.w;
}

extern "C" __global__ void store(Handle s, int x, int y, int v) {
    asm volatile("sust.b.2d.b32.trap [%0,{%1,%2}],{%3};" ::"l"(s), "r"(x), "r"(y), "r"(v));
}
