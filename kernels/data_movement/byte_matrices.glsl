// Transposes a 4 x 4 matrix of bytes, whose rows are words: byte i of word j becomes byte j of word i.
#ifdef TURNED_BY_BYTES
// For Intel, whose instructions take single bytes out of registers: 16 of them, in place of 32.
uvec4 turned(uvec4 rows) {
    u8vec4 x = unpack8(rows.x);
    u8vec4 y = unpack8(rows.y);
    u8vec4 z = unpack8(rows.z);
    u8vec4 w = unpack8(rows.w);
    return uvec4(pack32(u8vec4(x.x, y.x, z.x, w.x)), pack32(u8vec4(x.y, y.y, z.y, w.y)),
        pack32(u8vec4(x.z, y.z, z.z, w.z)), pack32(u8vec4(x.w, y.w, z.w, w.w)));
}
#else
uvec4 turned(uvec4 rows) {
    uvec4 even = rows & 0x00FF00FF;
    uvec4 odd = (rows >> 8) & 0x00FF00FF;
    uvec2 columns02 = uvec2(even.x | even.y << 8, even.z | even.w << 8);
    uvec2 columns13 = uvec2(odd.x | odd.y << 8, odd.z | odd.w << 8);
    return uvec4((columns02.x & 0xFFFF) | columns02.y << 16, (columns13.x & 0xFFFF) | columns13.y << 16,
        columns02.x >> 16 | (columns02.y & 0xFFFF0000), columns13.x >> 16 | (columns13.y & 0xFFFF0000));
}
#endif
