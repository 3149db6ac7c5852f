"""Writes small matrices that are hard for iterations, or for factors: python3 hard.py FOLDER."""
import math
import os
import random
import sys

random.seed(7)
def write(name,n,rows):
    nz=sum(len(r) for r in rows)
    with open(os.path.join(sys.argv[1], name + '.mtx'),'w') as f:
        f.write('%%MatrixMarket matrix coordinate real general\n'); f.write(f'{n} {n} {nz}\n')
        for i,r in enumerate(rows):
            for j,v in r.items(): f.write(f'{i+1} {j+1} {v!r}\n')
def grid2(m,stencil):
    rows=[]
    for y in range(m):
        for x in range(m):
            r={}
            for dx,dy,v in stencil:
                X,Y=x+dx,y+dy
                if 0<=X<m and 0<=Y<m: r[Y*m+X]=r.get(Y*m+X,0)+v
            rows.append(r)
    return rows
L=[(0,0,4.0),(1,0,-1.0),(-1,0,-1.0),(0,1,-1.0),(0,-1,-1.0)]
def perm(rows,seed):
    random.seed(seed); p=list(range(len(rows))); random.shuffle(p); return [rows[i] for i in p]
a=grid2(60,L); write('permlap60',3600,perm(a,1))
a=grid2(200,L); write('permlap200',40000,perm(a,1))
for m in (60,150):
    a=grid2(m,L)
    for r in a:
        for _ in range(3): r[random.randrange(m*m)]=random.gauss(0,1e-3)
    write(f'permnoise{m}',m*m,perm(a,2))
def kkt(m,q,name):
    n=m*m; a=grid2(m,L)
    for i in range(n): a[i][i]+=1e-2
    B=[{random.randrange(n):random.gauss(0,1) for _ in range(4)} for _ in range(q)]
    for k,b in enumerate(B):
        for j,v in b.items(): a[j][n+k]=v
        a.append(dict(b))
    write(name,n+q,a)
kkt(50,600,'kkt50'); kkt(150,5000,'kkt150')
def chem(n,seed,name):
    random.seed(seed); p=list(range(n)); random.shuffle(p); rows=[]
    for i in range(n):
        r={p[i]:math.copysign(10**random.uniform(-1,4),random.gauss(0,1))}
        for _ in range(4):
            j=random.randrange(n)
            if j not in r: r[j]=math.copysign(10**random.uniform(-6,2),random.gauss(0,1))
        rows.append(r)
    write(name,n,rows)
chem(500,1,'chem500'); chem(20000,2,'chem20k')
for k,m in ((30,80),(60,150)):
    h=1/(m+1); a=grid2(m,[(0,0,4-(k*h)**2)]+L[1:]); write(f'helm{k}',m*m,a)
m=100; pe=50.0; a=grid2(m,[(0,0,4.0),(1,0,-1+pe),(-1,0,-1-pe),(0,1,-1+pe),(0,-1,-1-pe)]); write('conv',m*m,a)
n=3000; rows=[{i:4.0+i%3} for i in range(n)]
for i in range(1,n): rows[0][i]=1.0; rows[i][0]=1.0
rows[0][0]=0.0; write('arrow0',n,rows)
m=60; a=grid2(m,[(0,0,20.0),(1,0,-8.0),(-1,0,-8.0),(0,1,-8.0),(0,-1,-8.0),(2,0,1.0),(-2,0,1.0),(0,2,1.0),(0,-2,1.0),(1,1,2.0),(1,-1,2.0),(-1,1,2.0),(-1,-1,2.0)]); write('biharm',m*m,a)
m=60; a=grid2(m,[(1,0,1.0),(-1,0,-1.0),(0,1,2.0),(0,-1,-2.0)]); write('skew',m*m,a)
m=40
# Stokes MAC-like: gradient/divergence saddle on m x m
def idx(x,y,c): return (y*m+x)*3+c
rows=[{} for _ in range(3*m*m)]
for y in range(m):
    for x in range(m):
        for c in (0,1):
            r=rows[idx(x,y,c)]; r[idx(x,y,c)]=4.0
            for dx,dy in ((1,0),(-1,0),(0,1),(0,-1)):
                if 0<=x+dx<m and 0<=y+dy<m: r[idx(x+dx,y+dy,c)]=-1.0
        for c,(dx,dy) in ((0,(1,0)),(1,(0,1))):
            if x+dx<m and y+dy<m:
                rows[idx(x,y,c)][idx(x,y,2)]=-1.0; rows[idx(x,y,c)][idx(x+dx,y+dy,2)]=1.0
                rows[idx(x,y,2)][idx(x,y,c)]=-1.0; rows[idx(x+dx,y+dy,2)][idx(x,y,c)]=1.0
rows[idx(0,0,2)][idx(0,0,2)]=1.0
write('mac40',3*m*m,rows)
