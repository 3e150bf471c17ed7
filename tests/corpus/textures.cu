// Texture fetches of every geometry and surfaces of every width.
#define F(value) { float4 t = (value); sum += t.x + t.y * t.z + t.w; }
extern "C" __global__ void fetches(float* out, cudaTextureObject_t tex, const cudaTextureObject_t* many, float x, float y, float z, int layer, float lod) {
    float sum = 0; x += threadIdx.x; y *= threadIdx.y;
    float2 dx2 = {x, y}, dy2 = {y, x};
    float4 dx4 = {x, y, z, x}, dy4 = {y, x, z, y};
    bool resident;
    F(tex1Dfetch<float4>(tex, layer)); F(tex1D<float4>(tex, x)); F(tex1DLod<float4>(tex, x, lod)); F(tex1DGrad<float4>(tex, x, y, z));
    F(tex2D<float4>(tex, x, y)); F(tex2DLod<float4>(tex, x, y, lod)); F(tex2DGrad<float4>(tex, x, y, dx2, dy2));
    F(tex3D<float4>(tex, x, y, z)); F(tex3DLod<float4>(tex, x, y, z, lod)); F(tex3DGrad<float4>(tex, x, y, z, dx4, dy4));
    F(tex1DLayered<float4>(tex, x, layer)); F(tex1DLayeredLod<float4>(tex, x, layer, lod)); F(tex1DLayeredGrad<float4>(tex, x, layer, y, z));
    F(tex2DLayered<float4>(tex, x, y, layer)); F(tex2DLayeredLod<float4>(tex, x, y, layer, lod)); F(tex2DLayeredGrad<float4>(tex, x, y, layer, dx2, dy2));
    F(texCubemap<float4>(tex, x, y, z)); F(texCubemapLod<float4>(tex, x, y, z, lod)); F(texCubemapGrad<float4>(tex, x, y, z, dx4, dy4));
    F(texCubemapLayered<float4>(tex, x, y, z, layer)); F(texCubemapLayeredLod<float4>(tex, x, y, z, layer, lod));
    F(tex2Dgather<float4>(tex, x, y, 0)); F(tex2Dgather<float4>(tex, x, y, 1)); F(tex2Dgather<float4>(tex, x, y, 2)); F(tex2Dgather<float4>(tex, x, y, 3));
    F(tex2D<float4>(tex, x, y, &resident)); sum += resident; F(tex2DLod<float4>(tex, x, y, lod, &resident)); sum += resident;
    F(tex2D<float4>(many[threadIdx.x], x, y)); F(tex3D<float4>(many[threadIdx.x], x, y, z)); F(tex1Dfetch<float4>(many[layer], threadIdx.x));
    sum += tex2D<float>(tex, x, z) + tex2D<unsigned char>(tex, z, y) + tex2D<short2>(tex, z, z).y + tex1Dfetch<int>(tex, 5);
    out[threadIdx.x] = sum;
}

template <typename T>
__device__ T surfaces(cudaSurfaceObject_t s, int x, int y, int z, T v) {
    surf1Dwrite(v, s, x); surf1Dwrite(surf1Dread<T>(s, x + 4), s, x, cudaBoundaryModeClamp);
    surf2Dwrite(surf2Dread<T>(s, x, y), s, x, y); surf2Dwrite(surf2Dread<T>(s, x, y, cudaBoundaryModeZero), s, y, x, cudaBoundaryModeZero);
    surf3Dwrite(surf3Dread<T>(s, x, y, z), s, y, x, z); surf1DLayeredwrite(surf1DLayeredread<T>(s, x, z), s, y, z);
    surf2DLayeredwrite(surf2DLayeredread<T>(s, x, y, z), s, y, x, z); surfCubemapwrite(surfCubemapread<T>(s, x, y, z), s, y, x, z);
    return surf2Dread<T>(s, y, y, cudaBoundaryModeClamp);
}
#define SURFACES(T) extern "C" __global__ void surfaces_##T(cudaSurfaceObject_t s, const cudaSurfaceObject_t* many, int y, int z, T* v) { \
        v[threadIdx.x] = surfaces<T>(s, threadIdx.x * sizeof(T), y, z, v[y]); v[9] = surf2Dread<T>(many[threadIdx.x], y, z); }
SURFACES(char) SURFACES(short) SURFACES(int) SURFACES(int2) SURFACES(int4) SURFACES(uchar4)
